package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// changes reads the change feed until a page is empty.
func changes(settings *azcosmos.ChangeFeedOptions) ([]string, *string, error) {
	ids := []string{}
	for range 1000 {
		page, err := items.ReadChangeFeed(ctx, settings)
		if err != nil {
			return nil, nil, err
		}
		if page.ContinuationToken != "" {
			settings.Continuation = &page.ContinuationToken
		}
		if len(page.Items) == 0 {
			return ids, settings.Continuation, nil
		}
		for _, item := range page.Items {
			ids = append(ids, field(item, "id").(string))
		}
	}
	return nil, nil, errors.New("more than 1000 pages of the change feed")
}

func feeds() {
	positions := []*string{}
	ranges := []azcosmos.FeedRange{}
	step("change-feed-from-beginning", func() error {
		var err error
		if ranges, err = items.ReadFeedRanges(ctx, nil); err != nil {
			return err
		}
		seen := map[string]bool{}
		for index := range ranges {
			ids, position, err := changes(&azcosmos.ChangeFeedOptions{FeedRange: &ranges[index], MaxItemCount: 6})
			if err != nil {
				return err
			}
			positions = append(positions, position)
			for _, id := range ids {
				seen[id] = true
			}
		}
		return expect("items", len(seen), itemCount)
	})
	step("change-feed-resumed", func() error {
		item := sample(7)
		item["changed"] = true
		if _, err := items.UpsertItem(ctx, key(item["pk"].(string)), text(item), nil); err != nil {
			return err
		}
		seen := []string{}
		for index := range ranges {
			ids, position, err := changes(&azcosmos.ChangeFeedOptions{FeedRange: &ranges[index], Continuation: positions[index]})
			if err != nil {
				return err
			}
			positions[index] = position
			seen = append(seen, ids...)
		}
		return expect("ids", seen, []string{"i-07"})
	})
	step("change-feed-one-partition-key", func() error {
		one := key("p-03")
		seen := []string{}
		for index := range ranges {
			ids, _, err := changes(&azcosmos.ChangeFeedOptions{PartitionKey: &one, FeedRange: &ranges[index]})
			if err != nil {
				return err
			}
			seen = append(seen, ids...)
		}
		return expect("ids", seen, []string{"i-03", "i-15", "i-27", "i-39", "i-51"})
	})
	step("change-feed-processor", func() error { return missing{"azcosmos has no change feed processor"} })
	step("split-underneath-query-pages", func() error {
		pager := items.NewQueryItemsPager("SELECT VALUE c.n FROM c ORDER BY c.n", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{PageSizeHint: 20})
		rows := []any{}
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				if err := splitPartition(databaseName, "items"); err != nil {
					return err
				}
			}
			for _, row := range page.Items {
				rows = append(rows, parsed(row))
			}
		}
		return expect("rows", rows, numbers(0, 60, 1))
	})
	step("split-underneath-reads", func() error {
		for number := range itemCount {
			item := sample(number)
			answer, err := items.ReadItem(ctx, key(item["pk"].(string)), item["id"].(string), nil)
			if err != nil {
				return err
			}
			if err := expect("n", field(answer.Value, "n"), number); err != nil {
				return err
			}
		}
		return nil
	})
	step("split-underneath-read-many", func() error {
		var wanted []azcosmos.ItemIdentity
		for number := range itemCount {
			item := sample(number)
			wanted = append(wanted, azcosmos.ItemIdentity{ID: item["id"].(string), PartitionKey: key(item["pk"].(string))})
		}
		answer, err := items.ReadManyItems(ctx, wanted, nil)
		if err != nil {
			return err
		}
		return expect("items", len(answer.Items), itemCount)
	})
	step("split-underneath-change-feed", func() error {
		item := sample(8)
		item["changed"] = true
		if _, err := items.UpsertItem(ctx, key(item["pk"].(string)), text(item), nil); err != nil {
			return err
		}
		seen := []string{}
		for index := range ranges {
			ids, _, err := changes(&azcosmos.ChangeFeedOptions{FeedRange: &ranges[index], Continuation: positions[index]})
			if err != nil {
				return err
			}
			seen = append(seen, ids...)
		}
		if err := expect("ids", seen, []string{"i-08"}); err != nil {
			return err
		}
		now, err := items.ReadFeedRanges(ctx, nil)
		if err != nil {
			return err
		}
		return expect("feed ranges", len(now), 5)
	})
}

func script(kind, name string, body document) error {
	return control("PUT", "/databases/"+databaseName+"/containers/items/scripts/"+kind+"/"+url.PathEscape(name), body, nil)
}

func scriptsAndTime() {
	step("stored-procedure", func() error { return missing{"azcosmos runs no stored procedures"} })
	step("stored-procedure-rolls-back", func() error { return missing{"azcosmos runs no stored procedures"} })
	step("user-defined-function", func() error {
		if err := script("functions", "double", document{"body": "function (n) { return 2 * n; }"}); err != nil {
			return err
		}
		rows, _, err := query(items, "SELECT VALUE udf.double(c.n) FROM c WHERE c.n = 15", key("p-03"), nil)
		if err != nil {
			return err
		}
		return expect("rows", rows, []int{30})
	})
	step("trigger", func() error {
		source := "function stamp() { var r = getContext().getRequest(); var b = r.getBody(); b.stamped = true; r.setBody(b); }"
		if err := script("triggers", "stamp", document{"body": source, "triggerType": "Pre", "triggerOperation": "All"}); err != nil {
			return err
		}
		answer, err := items.CreateItem(ctx, key("p-trigger"), text(document{"id": "t", "pk": "p-trigger"}),
			&azcosmos.ItemOptions{PreTriggers: []string{"stamp"}, EnableContentResponseOnWrite: true})
		if err != nil {
			return err
		}
		return expect("stamped", field(answer.Value, "stamped"), true)
	})
	step("ttl-expires", func() error {
		if _, err := items.CreateItem(ctx, key("p-ttl"), text(document{"id": "t", "pk": "p-ttl", "ttl": 30}), nil); err != nil {
			return err
		}
		if _, err := items.ReadItem(ctx, key("p-ttl"), "t", nil); err != nil {
			return err
		}
		if err := control("POST", "/clock", document{"advanceSeconds": 31}, nil); err != nil {
			return err
		}
		_, err := items.ReadItem(ctx, key("p-ttl"), "t", nil)
		return expectStatus(err, 404)
	})
	step("throttled-429-retried", func() error {
		var rule struct {
			ID   any `json:"id"`
			Hits int `json:"hits"`
		}
		err := control("POST", "/faults", document{"operations": "read", "database": databaseName, "container": "items", "count": 2, "status": 429, "retryAfterMs": 10}, &rule)
		if err != nil {
			return err
		}
		answer, err := items.ReadItem(ctx, key("p-03"), "i-03", nil)
		if err != nil {
			return err
		}
		if err := control("GET", fmt.Sprintf("/faults/%v", rule.ID), nil, &rule); err != nil {
			return err
		}
		if err := control("DELETE", "/faults", nil, nil); err != nil {
			return err
		}
		return expect("refusals and answer", []any{rule.Hits, field(answer.Value, "n")}, []any{2, 3})
	})
}

func throughputAndLimits() {
	step("throughput-read", func() error {
		answer, err := items.ReadThroughput(ctx, nil)
		if err != nil {
			return err
		}
		ru, isManual := answer.ThroughputProperties.ManualThroughput()
		return expect("throughput", []any{ru, isManual}, []any{20000, true})
	})
	step("throughput-replace", func() error {
		if _, err := items.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(15000), nil); err != nil {
			return err
		}
		answer, err := items.ReadThroughput(ctx, nil)
		if err != nil {
			return err
		}
		ru, _ := answer.ThroughputProperties.ManualThroughput()
		return expect("throughput", ru, 15000)
	})
	step("throughput-autoscale", func() error {
		throughput := azcosmos.NewAutoscaleThroughputProperties(4000)
		_, err := database.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "scaling",
			PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}},
		}, &azcosmos.CreateContainerOptions{ThroughputProperties: &throughput})
		if err != nil {
			return err
		}
		scaling, err := database.NewContainer("scaling")
		if err != nil {
			return err
		}
		answer, err := scaling.ReadThroughput(ctx, nil)
		if err != nil {
			return err
		}
		most, _ := answer.ThroughputProperties.AutoscaleMaxThroughput()
		return expect("maximum", most, 4000)
	})
	step("throughput-of-database-404", func() error {
		_, err := database.ReadThroughput(ctx, nil)
		return expectStatus(err, 404)
	})
	step("large-item-refused-413", func() error {
		large := document{"id": "large", "pk": "p-large", "text": strings.Repeat("x", 2*1024*1024)}
		_, err := items.CreateItem(ctx, key("p-large"), text(large), nil)
		return expectStatus(err, 413)
	})
	step("unique-key-409", func() error {
		_, err := database.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "unique",
			PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}},
			UniqueKeyPolicy:        &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/mail"}}}}}, nil)
		if err != nil {
			return err
		}
		unique, err := database.NewContainer("unique")
		if err != nil {
			return err
		}
		if _, err := unique.CreateItem(ctx, key("a"), text(document{"id": "1", "pk": "a", "mail": "m"}), nil); err != nil {
			return err
		}
		_, err = unique.CreateItem(ctx, key("a"), text(document{"id": "2", "pk": "a", "mail": "m"}), nil)
		return expectStatus(err, 409)
	})
	step("number-partition-keys", func() error {
		where := azcosmos.NewPartitionKeyNumber(1.5)
		if _, err := items.CreateItem(ctx, where, text(document{"id": "number", "pk": 1.5}), nil); err != nil {
			return err
		}
		answer, err := items.ReadItem(ctx, where, "number", nil)
		if err != nil {
			return err
		}
		return expect("key", field(answer.Value, "pk"), 1.5)
	})
	step("null-partition-keys", func() error {
		where := azcosmos.NewPartitionKey().AppendNull()
		if _, err := items.CreateItem(ctx, where, text(document{"id": "null", "pk": nil}), nil); err != nil {
			return err
		}
		_, err := items.ReadItem(ctx, where, "null", nil)
		return err
	})
	step("priority-and-throughput-bucket", func() error {
		low, bucket := azcosmos.PriorityLevelLow, int32(1)
		_, err := items.ReadItem(ctx, key("p-03"), "i-03", &azcosmos.ItemOptions{PriorityLevel: &low, ThroughputBucket: &bucket})
		return err
	})
	step("connection-string", func() error {
		settings, err := options()
		if err != nil {
			return err
		}
		other, err := azcosmos.NewClientFromConnectionString(
			"AccountEndpoint="+strings.TrimSuffix(client.Endpoint(), "/")+"/;AccountKey="+os.Getenv("ARMILLARY_KEY")+";", settings)
		if err != nil {
			return err
		}
		defer other.Close()
		container, err := other.NewContainer(databaseName, "items")
		if err != nil {
			return err
		}
		_, err = container.ReadItem(ctx, key("p-03"), "i-03", nil)
		return err
	})
	step("wrong-key-401", func() error {
		settings, err := options()
		if err != nil {
			return err
		}
		credential, err := azcosmos.NewKeyCredential("d3Jvbmcga2V5")
		if err != nil {
			return err
		}
		other, err := azcosmos.NewClientWithKey(client.Endpoint(), credential, settings)
		if err != nil {
			return err
		}
		defer other.Close()
		container, err := other.NewContainer(databaseName, "items")
		if err != nil {
			return err
		}
		_, err = container.ReadItem(ctx, key("p-03"), "i-03", nil)
		return expectStatus(err, 401)
	})
}
