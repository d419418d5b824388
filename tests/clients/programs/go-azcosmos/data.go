package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

const itemCount = 60

// Sixty items of twelve partition keys lie in all partitions: n counts them, team is one of three.
func sample(number int) document {
	return document{"id": fmt.Sprintf("i-%02d", number), "pk": fmt.Sprintf("p-%02d", number%12), "n": number,
		"team": fmt.Sprintf("g%d", number%3), "price": float64(number) * 1.5, "tags": []string{"all", fmt.Sprintf("t%d", number%2)}}
}

func batchesAndKeys() {
	step("bulk", func() error { return missing{"azcosmos has no bulk mode; the items are created one by one"} })
	step("create-sixty-items", func() error {
		for number := range itemCount {
			item := sample(number)
			if _, err := items.CreateItem(ctx, key(item["pk"].(string)), text(item), nil); err != nil {
				return err
			}
		}
		return nil
	})
	step("batch", func() error {
		batch := items.NewTransactionalBatch(key("p-batch"))
		batch.CreateItem(text(document{"id": "b1", "pk": "p-batch", "v": 1}), nil)
		batch.CreateItem(text(document{"id": "b2", "pk": "p-batch", "v": 2}), nil)
		batch.UpsertItem(text(document{"id": "b3", "pk": "p-batch", "v": 3}), nil)
		batch.ReplaceItem("b2", text(document{"id": "b2", "pk": "p-batch", "v": 22}), nil)
		patch := azcosmos.PatchOperations{}
		patch.AppendIncrement("/v", 10)
		batch.PatchItem("b1", patch, nil)
		batch.ReadItem("b1", nil)
		batch.DeleteItem("b3", nil)
		answer, err := items.ExecuteTransactionalBatch(ctx, batch, &azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true})
		if err != nil {
			return err
		}
		var statuses []int32
		for _, result := range answer.OperationResults {
			statuses = append(statuses, result.StatusCode)
		}
		if err := expect("statuses", statuses, []int{201, 201, 201, 200, 200, 200, 204}); err != nil {
			return err
		}
		return expect("value", field(answer.OperationResults[5].ResourceBody, "v"), 11)
	})
	step("batch-rolls-back", func() error {
		batch := items.NewTransactionalBatch(key("p-batch"))
		batch.CreateItem(text(document{"id": "b9", "pk": "p-batch"}), nil)
		batch.CreateItem(text(document{"id": "b1", "pk": "p-batch"}), nil)
		answer, err := items.ExecuteTransactionalBatch(ctx, batch, nil)
		if err != nil {
			return err
		}
		statuses := []int32{answer.OperationResults[0].StatusCode, answer.OperationResults[1].StatusCode}
		if err := expect("statuses", []any{answer.Success, statuses}, []any{false, []int{424, 409}}); err != nil {
			return err
		}
		_, err = items.ReadItem(ctx, key("p-batch"), "b9", nil)
		return expectStatus(err, 404)
	})
	step("batch-with-stale-etag-412", func() error {
		stale := azcore.ETag("\"stale\"")
		batch := items.NewTransactionalBatch(key("p-batch"))
		batch.ReplaceItem("b1", text(document{"id": "b1", "pk": "p-batch"}), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &stale})
		answer, err := items.ExecuteTransactionalBatch(ctx, batch, nil)
		if err != nil {
			return err
		}
		for _, id := range []string{"b1", "b2"} {
			if _, err := items.DeleteItem(ctx, key("p-batch"), id, nil); err != nil {
				return err
			}
		}
		return expect("status", answer.OperationResults[0].StatusCode, 412)
	})
	step("read-many-items", func() error {
		var wanted []azcosmos.ItemIdentity
		for _, number := range []int{3, 14, 15, 40, 59} {
			item := sample(number)
			wanted = append(wanted, azcosmos.ItemIdentity{ID: item["id"].(string), PartitionKey: key(item["pk"].(string))})
		}
		wanted = append(wanted, azcosmos.ItemIdentity{ID: "none", PartitionKey: key("p-00")})
		answer, err := items.ReadManyItems(ctx, wanted, nil)
		if err != nil {
			return err
		}
		total := 0.0
		for _, item := range answer.Items {
			total += field(item, "n").(float64)
		}
		return expect("count and sum", []any{len(answer.Items), total}, []any{5, 131})
	})
	hierarchicalKeys()
}

func hierarchicalKeys() {
	var tenants *azcosmos.ContainerClient
	step("hierarchical-keys-create", func() error {
		throughput := azcosmos.NewManualThroughputProperties(20000)
		_, err := database.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "tenants",
			PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
				Paths: []string{"/tenant", "/user", "/session"}, Kind: azcosmos.PartitionKeyKindMultiHash, Version: 2},
		}, &azcosmos.CreateContainerOptions{ThroughputProperties: &throughput})
		if err != nil {
			return err
		}
		tenants, err = database.NewContainer("tenants")
		if err != nil {
			return err
		}
		for number := range 12 {
			tenant, user, visit := fmt.Sprintf("t%d", number%2), fmt.Sprintf("u%d", number%3), fmt.Sprintf("s%d", number)
			item := document{"id": fmt.Sprint(number), "tenant": tenant, "user": user, "session": visit, "n": number}
			if _, err := tenants.CreateItem(ctx, key(tenant, user, visit), text(item), nil); err != nil {
				return err
			}
		}
		return nil
	})
	step("hierarchical-keys-read", func() error {
		answer, err := tenants.ReadItem(ctx, key("t1", "u2", "s5"), "5", nil)
		if err != nil {
			return err
		}
		return expect("n", field(answer.Value, "n"), 5)
	})
	step("hierarchical-keys-query-prefix", func() error {
		rows, _, err := query(tenants, "SELECT VALUE c.n FROM c WHERE c.tenant = 't1' AND c.user = 'u0' ORDER BY c.n", azcosmos.NewPartitionKey(), nil)
		if err != nil {
			return err
		}
		return expect("rows", rows, []int{3, 9})
	})
	step("hierarchical-keys-query-whole-key", func() error {
		rows, _, err := query(tenants, "SELECT VALUE c.n FROM c", key("t0", "u1", "s4"), nil)
		if err != nil {
			return err
		}
		return expect("rows", rows, []int{4})
	})
	step("hierarchical-keys-read-many", func() error {
		answer, err := tenants.ReadManyItems(ctx, []azcosmos.ItemIdentity{
			{ID: "1", PartitionKey: key("t1", "u1", "s1")}, {ID: "8", PartitionKey: key("t0", "u2", "s8")}}, nil)
		if err != nil {
			return err
		}
		return expect("count", len(answer.Items), 2)
	})
	step("hierarchical-keys-batch", func() error {
		batch := tenants.NewTransactionalBatch(key("t1", "u1", "s1"))
		batch.UpsertItem(text(document{"id": "1", "tenant": "t1", "user": "u1", "session": "s1", "n": 100}), nil)
		answer, err := tenants.ExecuteTransactionalBatch(ctx, batch, nil)
		if err != nil {
			return err
		}
		return expect("success", answer.Success, true)
	})
}

// query reads all pages; it returns the rows and the length of each page.
func query(container *azcosmos.ContainerClient, sql string, where azcosmos.PartitionKey, settings *azcosmos.QueryOptions) ([]any, []int, error) {
	rows, pages := []any{}, []int{}
	pager := container.NewQueryItemsPager(sql, where, settings)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, row := range page.Items {
			rows = append(rows, parsed(row))
		}
		pages = append(pages, len(page.Items))
		if len(pages) > 1000 {
			return nil, nil, errors.New("more than 1000 pages")
		}
	}
	return rows, pages, nil
}

// whole runs a query over all partitions and compares its rows.
func whole(name, sql string, want any, settings *azcosmos.QueryOptions) {
	step(name, func() error {
		rows, _, err := query(items, sql, azcosmos.NewPartitionKey(), settings)
		if err != nil {
			return err
		}
		return expect("rows", rows, want)
	})
}

func numbers(from, to, by int) []int {
	all := []int{}
	for number := from; (by > 0 && number < to) || (by < 0 && number > to); number += by {
		all = append(all, number)
	}
	return all
}

func queries() {
	step("query-one-partition", func() error {
		rows, _, err := query(items, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", key("p-03"), nil)
		if err != nil {
			return err
		}
		return expect("rows", rows, []int{51, 39, 27, 15, 3})
	})
	step("query-parameters", func() error {
		rows, _, err := query(items, "SELECT VALUE c.n FROM c WHERE c.n > @least AND ARRAY_CONTAINS(c.tags, @tag)", key("p-03"),
			&azcosmos.QueryOptions{QueryParameters: []azcosmos.QueryParameter{{Name: "@least", Value: 20}, {Name: "@tag", Value: "t1"}}})
		if err != nil {
			return err
		}
		return expect("rows", rows, []int{27, 39, 51})
	})
	step("query-order-by-pages", func() error {
		rows, pages, err := query(items, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{PageSizeHint: 7})
		if err != nil {
			return err
		}
		for _, length := range pages {
			if length > 7 {
				return fmt.Errorf("a page of %d rows", length)
			}
		}
		return expect("rows", rows, numbers(59, -1, -1))
	})
	whole("query-order-by-two-paths", "SELECT VALUE c.n FROM c WHERE c.n < 9 ORDER BY c.team ASC, c.n DESC",
		[]int{6, 3, 0, 7, 4, 1, 8, 5, 2}, nil)
	whole("query-top", "SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n", numbers(0, 5, 1), nil)
	whole("query-count", "SELECT VALUE COUNT(1) FROM c", []int{60}, nil)
	whole("query-sum", "SELECT VALUE SUM(c.price) FROM c", []float64{2655}, nil)
	whole("query-avg", "SELECT VALUE AVG(c.n) FROM c", []float64{29.5}, nil)
	whole("query-min-max", "SELECT MIN(c.n) AS low, MAX(c.n) AS high FROM c", []document{{"low": 0, "high": 59}}, nil)
	step("query-group-by", func() error {
		rows, _, err := query(items, "SELECT c.team, COUNT(1) AS count, SUM(c.n) AS total FROM c GROUP BY c.team", azcosmos.NewPartitionKey(), nil)
		if err != nil {
			return err
		}
		found := map[string]any{}
		for _, row := range rows {
			found[row.(document)["team"].(string)] = []any{row.(document)["count"], row.(document)["total"]}
		}
		return expect("groups", found, map[string]any{"g0": []int{20, 570}, "g1": []int{20, 590}, "g2": []int{20, 610}})
	})
	whole("query-distinct", "SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team", []string{"g0", "g1", "g2"}, nil)
	whole("query-offset-limit", "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 5", numbers(10, 15, 1), nil)
	whole("query-offset-limit-pages", "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 5", numbers(10, 15, 1), &azcosmos.QueryOptions{PageSizeHint: 2})
	whole("query-join", "SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags WHERE t = 't1'", []int{30}, nil)
	step("query-filter-pages", func() error {
		rows, _, err := query(items, "SELECT VALUE c.n FROM c WHERE c.n >= 30", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{PageSizeHint: 4})
		if err != nil {
			return err
		}
		total := 0.0
		for _, row := range rows {
			total += row.(float64)
		}
		return expect("count and sum", []any{len(rows), total}, []any{30, 1335})
	})
	step("query-continuation-resumed", func() error {
		settings := &azcosmos.QueryOptions{PageSizeHint: 9}
		rows := []any{}
		for range 100 {
			page, err := items.NewQueryItemsPager("SELECT VALUE c.n FROM c ORDER BY c.n", azcosmos.NewPartitionKey(), settings).NextPage(ctx)
			if err != nil {
				return err
			}
			for _, row := range page.Items {
				rows = append(rows, parsed(row))
			}
			if page.ContinuationToken == nil || *page.ContinuationToken == "" {
				break
			}
			settings.ContinuationToken = page.ContinuationToken
		}
		return expect("rows", rows, numbers(0, 60, 1))
	})
	step("query-index-metrics", func() error {
		page, err := items.NewQueryItemsPager("SELECT * FROM c WHERE c.n = 3", key("p-03"), &azcosmos.QueryOptions{PopulateIndexMetrics: true}).NextPage(ctx)
		if err != nil {
			return err
		}
		if page.IndexMetrics == nil || *page.IndexMetrics == "" {
			return errors.New("no index metrics")
		}
		metrics, err := base64.StdEncoding.DecodeString(*page.IndexMetrics)
		if err != nil {
			return err
		}
		if !strings.Contains(string(metrics), "/n/?") {
			return fmt.Errorf("index metrics do not name the path: %s", metrics)
		}
		return nil
	})
	step("query-syntax-error-400", func() error {
		_, _, err := query(items, "SELECT FROM WHERE", azcosmos.NewPartitionKey(), nil)
		return expectStatus(err, 400)
	})
	step("query-two-aggregates-without-pages", func() error {
		rows, _, err := query(items, "SELECT COUNT(1) AS count, AVG(c.price) AS average FROM c WHERE c.team = 'g1'", azcosmos.NewPartitionKey(), nil)
		if err != nil {
			return err
		}
		return expect("rows", rows, []document{{"count": 20, "average": 44.25}})
	})
}
