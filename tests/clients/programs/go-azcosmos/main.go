// Drives azcosmos, the Go client of the SQL API, through the steps of tests/clients.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var (
	ctx          = context.Background()
	client       *azcosmos.Client
	databaseName = os.Getenv("ARMILLARY_DATABASE")
	database     *azcosmos.DatabaseClient
	items        *azcosmos.ContainerClient
	withContent  = &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}
)

type document = map[string]any

func main() {
	if err := connect(); err != nil {
		fmt.Printf("failed connect: %v\n", err)
		return
	}
	createResources()
	pointOperations()
	batchesAndKeys()
	queries()
	feeds()
	scriptsAndTime()
	throughputAndLimits()
	deleteResources()
}

// options trust the server's certificate if the endpoint is https.
func options() (*azcosmos.ClientOptions, error) {
	settings := &azcosmos.ClientOptions{}
	settings.Retry = policy.RetryOptions{MaxRetries: 5}
	if !strings.HasPrefix(os.Getenv("ARMILLARY_ENDPOINT"), "https:") {
		return settings, nil
	}
	certificate, err := os.ReadFile(os.Getenv("ARMILLARY_CERTIFICATE"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(certificate) {
		return nil, errors.New("ARMILLARY_CERTIFICATE holds no certificate")
	}
	settings.Transport = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}}
	return settings, nil
}

func connect() error {
	settings, err := options()
	if err != nil {
		return err
	}
	credential, err := azcosmos.NewKeyCredential(os.Getenv("ARMILLARY_KEY"))
	if err != nil {
		return err
	}
	client, err = azcosmos.NewClientWithKey(os.Getenv("ARMILLARY_ENDPOINT"), credential, settings)
	return err
}

func key(values ...string) azcosmos.PartitionKey {
	whole := azcosmos.NewPartitionKey()
	for _, value := range values {
		whole = whole.AppendString(value)
	}
	return whole
}

func text(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return content
}

func parsed(content []byte) any {
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		panic(fmt.Sprintf("%v in %q", err, content))
	}
	return value
}

// field is a property of an item's text.
func field(content []byte, name string) any { return parsed(content).(document)[name] }

// expectStatus passes if the request was refused with this status.
func expectStatus(err error, status int) error {
	var refusal *azcore.ResponseError
	if !errors.As(err, &refusal) {
		return fmt.Errorf("want status %d, got %v", status, err)
	}
	return expect("status", refusal.StatusCode, status)
}

func createResources() {
	step("create-database", func() error {
		answer, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: databaseName}, nil)
		if err != nil {
			return err
		}
		database, err = client.NewDatabase(databaseName)
		if err != nil {
			return err
		}
		return expect("id", answer.DatabaseProperties.ID, databaseName)
	})
	step("create-database-again-409", func() error {
		_, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: databaseName}, nil)
		return expectStatus(err, 409)
	})
	step("read-database", func() error {
		answer, err := database.Read(ctx, nil)
		if err != nil {
			return err
		}
		return expect("id", answer.DatabaseProperties.ID, databaseName)
	})
	step("query-databases", func() error {
		pager := client.NewQueryDatabasesPager("SELECT * FROM c WHERE c.id = @id", &azcosmos.QueryDatabasesOptions{
			QueryParameters: []azcosmos.QueryParameter{{Name: "@id", Value: databaseName}}})
		var names []string
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return err
			}
			for _, found := range page.Databases {
				names = append(names, found.ID)
			}
		}
		return expect("names", names, []string{databaseName})
	})
	step("create-container-four-partitions", func() error {
		throughput := azcosmos.NewManualThroughputProperties(20000)
		answer, err := database.CreateContainer(ctx, azcosmos.ContainerProperties{
			ID: "items",
			PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
				Paths: []string{"/pk"}, Kind: azcosmos.PartitionKeyKindHash, Version: 2},
			IndexingPolicy: &azcosmos.IndexingPolicy{
				Automatic: true, IndexingMode: azcosmos.IndexingModeConsistent,
				IncludedPaths: []azcosmos.IncludedPath{{Path: "/*"}},
				CompositeIndexes: [][]azcosmos.CompositeIndex{{
					{Path: "/team", Order: azcosmos.CompositeIndexAscending},
					{Path: "/n", Order: azcosmos.CompositeIndexDescending}}},
			},
		}, &azcosmos.CreateContainerOptions{ThroughputProperties: &throughput})
		if err != nil {
			return err
		}
		items, err = database.NewContainer("items")
		if err != nil {
			return err
		}
		if err := expect("path", answer.ContainerProperties.PartitionKeyDefinition.Paths, []string{"/pk"}); err != nil {
			return err
		}
		ranges, err := items.ReadFeedRanges(ctx, nil)
		if err != nil {
			return err
		}
		return expect("feed ranges", len(ranges), 4)
	})
	step("read-container", func() error {
		answer, err := items.Read(ctx, &azcosmos.ReadContainerOptions{PopulateQuotaInfo: true})
		if err != nil {
			return err
		}
		return expect("composite index", answer.ContainerProperties.IndexingPolicy.CompositeIndexes[0][1].Path, "/n")
	})
	step("query-containers", func() error {
		pager := database.NewQueryContainersPager("SELECT * FROM c", nil)
		var names []string
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return err
			}
			for _, found := range page.Containers {
				names = append(names, found.ID)
			}
		}
		return expect("names", names, []string{"items"})
	})
	step("replace-container", func() error {
		answer, err := items.Read(ctx, nil)
		if err != nil {
			return err
		}
		properties := *answer.ContainerProperties
		forever := int32(-1)
		properties.DefaultTimeToLive = &forever
		answer, err = items.Replace(ctx, properties, nil)
		if err != nil {
			return err
		}
		return expect("time to live", answer.ContainerProperties.DefaultTimeToLive, -1)
	})
}

func pointOperations() {
	single := document{"id": "one", "pk": "p-single", "n": -1, "name": "first", "tags": []string{"a"}}
	var etag azcore.ETag
	var session *string
	step("create-item", func() error {
		answer, err := items.CreateItem(ctx, key("p-single"), text(single), withContent)
		if err != nil {
			return err
		}
		etag, session = answer.ETag, answer.SessionToken
		if answer.RequestCharge <= 0 {
			return errors.New("no charge")
		}
		return expect("name", field(answer.Value, "name"), "first")
	})
	step("create-item-without-content", func() error {
		answer, err := items.CreateItem(ctx, key("p-single"), text(document{"id": "two", "pk": "p-single"}), nil)
		if err != nil {
			return err
		}
		return expect("body", len(answer.Value), 0)
	})
	step("create-item-again-409", func() error {
		_, err := items.CreateItem(ctx, key("p-single"), text(single), nil)
		return expectStatus(err, 409)
	})
	step("read-item", func() error {
		answer, err := items.ReadItem(ctx, key("p-single"), "one", nil)
		if err != nil {
			return err
		}
		if err := expect("etag", answer.ETag, etag); err != nil {
			return err
		}
		return expect("tags", field(answer.Value, "tags"), []string{"a"})
	})
	step("read-missing-item-404", func() error {
		_, err := items.ReadItem(ctx, key("p-single"), "none", nil)
		return expectStatus(err, 404)
	})
	step("session-read-own-write", func() error {
		answer, err := items.ReadItem(ctx, key("p-single"), "one", &azcosmos.ItemOptions{
			SessionToken: session, ConsistencyLevel: azcosmos.ConsistencyLevelSession.ToPtr()})
		if err != nil {
			return err
		}
		return expect("name", field(answer.Value, "name"), "first")
	})
	step("upsert-item", func() error {
		single["name"] = "second"
		answer, err := items.UpsertItem(ctx, key("p-single"), text(single), withContent)
		if err != nil {
			return err
		}
		if err := expect("status", answer.RawResponse.StatusCode, 200); err != nil {
			return err
		}
		return expect("name", field(answer.Value, "name"), "second")
	})
	step("replace-item", func() error {
		single["name"] = "third"
		answer, err := items.ReplaceItem(ctx, key("p-single"), "one", text(single), withContent)
		if err != nil {
			return err
		}
		return expect("name", field(answer.Value, "name"), "third")
	})
	step("replace-with-stale-etag-412", func() error {
		_, err := items.ReplaceItem(ctx, key("p-single"), "one", text(single), &azcosmos.ItemOptions{IfMatchEtag: &etag})
		return expectStatus(err, 412)
	})
	step("patch-item", func() error {
		patch := azcosmos.PatchOperations{}
		patch.AppendSet("/name", "fourth")
		patch.AppendAdd("/tags/-", "b")
		patch.AppendIncrement("/n", 5)
		patch.AppendAdd("/extra", document{"deep": true})
		patch.AppendReplace("/extra/deep", false)
		patch.AppendRemove("/extra")
		answer, err := items.PatchItem(ctx, key("p-single"), "one", patch, withContent)
		if err != nil {
			return err
		}
		got := parsed(answer.Value).(document)
		return expect("item", []any{got["name"], got["tags"], got["n"], got["extra"]}, []any{"fourth", []string{"a", "b"}, 4, nil})
	})
	step("patch-with-condition-412", func() error {
		patch := azcosmos.PatchOperations{}
		patch.SetCondition("FROM c WHERE c.n = 99")
		patch.AppendSet("/name", "never")
		_, err := items.PatchItem(ctx, key("p-single"), "one", patch, nil)
		return expectStatus(err, 412)
	})
	step("unicode-ids", func() error {
		id := "größe 数据 🌍 'quoted' +%"
		if _, err := items.CreateItem(ctx, key("p-single"), text(document{"id": id, "pk": "p-single"}), nil); err != nil {
			return err
		}
		answer, err := items.ReadItem(ctx, key("p-single"), id, nil)
		if err != nil {
			return err
		}
		return expect("id", field(answer.Value, "id"), id)
	})
	step("unicode-partition-keys", func() error {
		if _, err := items.CreateItem(ctx, key("schlüssel 数"), text(document{"id": "u", "pk": "schlüssel 数"}), nil); err != nil {
			return err
		}
		answer, err := items.ReadItem(ctx, key("schlüssel 数"), "u", nil)
		if err != nil {
			return err
		}
		if _, err := items.DeleteItem(ctx, key("schlüssel 数"), "u", nil); err != nil {
			return err
		}
		return expect("key", field(answer.Value, "pk"), "schlüssel 数")
	})
	step("unicode-partition-keys-beyond-bmp", func() error {
		_, err := items.CreateItem(ctx, key("🔑"), text(document{"id": "u", "pk": "🔑"}), nil)
		if refused := expectStatus(err, 400); refused != nil {
			return refused
		}
		return missing{"azcosmos writes such characters of a key as \\U0001f511, which is not JSON, and the server refuses it"}
	})
	step("delete-item", func() error {
		for _, id := range []string{"one", "two", "größe 数据 🌍 'quoted' +%"} {
			if _, err := items.DeleteItem(ctx, key("p-single"), id, nil); err != nil {
				return err
			}
		}
		_, err := items.ReadItem(ctx, key("p-single"), "one", nil)
		return expectStatus(err, 404)
	})
}

func deleteResources() {
	step("delete-container", func() error {
		if _, err := items.Delete(ctx, nil); err != nil {
			return err
		}
		_, err := items.Read(ctx, nil)
		return expectStatus(err, 404)
	})
	step("delete-database", func() error {
		if _, err := database.Delete(ctx, nil); err != nil {
			return err
		}
		_, err := database.Read(ctx, nil)
		return expectStatus(err, 404)
	})
}
