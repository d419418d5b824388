//! What needs the server's help: change feeds over splits, scripts, time to live, throttling, throughput.

use crate::steps::{Checked, control, expect, missing, split_partition, step};
use crate::{Account, ITEM_COUNT, database_name, refused, sample, sample_key, with_content};
use std::time::Duration;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::ContinuationToken;
use azure_data_cosmos::models::{ChangeFeedPolicy, ContainerProperties, ThroughputProperties, UniqueKey, UniqueKeyPolicy};
use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, CreateContainerOptions};
use azure_data_cosmos::{FeedScope, PartitionKey};
use futures::TryStreamExt;
use serde_json::{Value, json};

/// The ids of all changes up to the first round without any, and where to go on.
async fn changes(items: &ContainerClient, scope: FeedScope, start: ChangeFeedStartFrom, options: ChangeFeedOptions) -> Checked<(Vec<String>, ContinuationToken)> {
    let mut pages = items.query_change_feed::<Value>(scope, start, Some(options)).await?;
    let mut ids = vec![];
    let mut empty = 0;
    while empty < 12 {
        let Some(page) = pages.try_next().await? else { break };
        empty = if page.items().is_empty() { empty + 1 } else { 0 };
        for change in page.items() {
            let current = change.current().ok_or("a change without an item")?;
            ids.push(current["id"].as_str().unwrap_or("").to_owned());
        }
    }
    Ok((ids, pages.to_continuation_token()?))
}

pub async fn feeds(account: &Account, items: &ContainerClient) {
    all_versions(account).await;
    let mut position = None;
    step("change-feed-from-beginning", async {
        let (mut ids, token) = changes(items, FeedScope::full_container(), ChangeFeedStartFrom::Beginning, ChangeFeedOptions::default()).await?;
        position = Some(token);
        ids.sort();
        ids.dedup();
        expect("items", ids.len(), ITEM_COUNT)
    })
    .await;
    step("change-feed-resumed", async {
        items.upsert_item(sample_key(7), "i-07", sample(7), None).await?;
        let options = ChangeFeedOptions::default().with_continuation_token(position.clone().ok_or("no token")?);
        let (ids, token) = changes(items, FeedScope::full_container(), ChangeFeedStartFrom::Beginning, options).await?;
        position = Some(token);
        expect("ids", ids, ["i-07"])
    })
    .await;
    step("change-feed-one-partition-key", async {
        let (ids, _) = changes(items, FeedScope::partition("p-03"), ChangeFeedStartFrom::Beginning, ChangeFeedOptions::default()).await?;
        expect("ids", ids, ["i-03", "i-15", "i-27", "i-39", "i-51"])
    })
    .await;
    step("change-feed-from-now", async {
        let (ids, token) = changes(items, FeedScope::partition("p-03"), ChangeFeedStartFrom::Now, ChangeFeedOptions::default()).await?;
        expect("ids", ids.len(), 0)?;
        items.upsert_item("p-03", "i-15", sample(15), None).await?;
        let options = ChangeFeedOptions::default().with_continuation_token(token);
        let (ids, _) = changes(items, FeedScope::partition("p-03"), ChangeFeedStartFrom::Now, options).await?;
        expect("ids", ids, ["i-15"])
    })
    .await;
    missing("change-feed-processor", "azure_data_cosmos has no change feed processor").await;
    step("split-underneath-query-pages", async {
        let options = crate::queries::page_size(20);
        let mut pages = items.query_items::<i64>("SELECT VALUE c.n FROM c ORDER BY c.n", FeedScope::full_container(), Some(options)).await?.into_pages();
        let mut rows = pages.try_next().await?.ok_or("no page")?.into_items();
        split_partition(&database_name(), "items")?;
        while let Some(page) = pages.try_next().await? {
            rows.extend(page.into_items());
        }
        expect("rows", rows, (0..ITEM_COUNT as i64).collect::<Vec<_>>())
    })
    .await;
    step("split-underneath-reads", async {
        for number in 0..ITEM_COUNT {
            let found: Value = items.read_item(sample_key(number), &format!("i-{number:02}"), None).await?.into_model()?;
            expect("n", &found["n"], number as i64)?;
        }
        Ok(())
    })
    .await;
    step("split-underneath-change-feed", async {
        items.upsert_item(sample_key(8), "i-08", sample(8), None).await?;
        let options = ChangeFeedOptions::default().with_continuation_token(position.clone().ok_or("no token")?);
        let (ids, _) = changes(items, FeedScope::full_container(), ChangeFeedStartFrom::Beginning, options).await?;
        expect("ids", ids, ["i-15", "i-08"])
    })
    .await;
    step("split-underneath-feed-ranges", async {
        let options = azure_data_cosmos::options::ReadFeedRangesOptions::default().with_force_refresh(true);
        expect("feed ranges", items.read_feed_ranges(Some(options)).await?.len(), 5)
    })
    .await;
}

async fn all_versions(account: &Account) {
    step("change-feed-all-versions-and-deletes", async {
        let policy = ChangeFeedPolicy::default().with_retention_duration(Duration::from_secs(600));
        let properties = ContainerProperties::new("versions", "/pk".into()).with_change_feed_policy(policy);
        account.database.create_container(properties, None).await?;
        let items = account.container("versions").await?;
        let options = || ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
        let scope = || FeedScope::partition("p-versions");
        let mut pages = items.query_change_feed::<Value>(scope(), ChangeFeedStartFrom::Now, Some(options())).await?;
        pages.try_next().await?;
        let token = pages.to_continuation_token()?;
        for value in [1, 2] {
            items.upsert_item("p-versions", "v", json!({"id": "v", "pk": "p-versions", "value": value}), None).await?;
        }
        items.delete_item("p-versions", "v", None).await?;
        let mut pages = items.query_change_feed::<Value>(scope(), ChangeFeedStartFrom::Now, Some(options().with_continuation_token(token))).await?;
        let mut kinds = vec![];
        while kinds.len() < 3 {
            let Some(page) = pages.try_next().await? else { break };
            kinds.extend(page.items().iter().map(|each| format!("{:?}", each.operation_type())));
        }
        expect("kinds", kinds.join(" "), "Some(Create) Some(Replace) Some(Delete)")
    })
    .await;
}

pub async fn scripts_and_time(items: &ContainerClient) {
    let folder = format!("/databases/{}/containers/items/scripts", database_name());
    for name in ["stored-procedure", "stored-procedure-rolls-back", "trigger"] {
        missing(name, "azure_data_cosmos runs no scripts").await;
    }
    step("user-defined-function", async {
        control("PUT", &format!("{folder}/functions/double"), json!({"body": "function (n) { return 2 * n; }"}))?;
        let query = "SELECT VALUE udf.double(c.n) FROM c WHERE c.n = 15";
        let rows: Vec<i64> = items.query_items::<i64>(query, FeedScope::partition("p-03"), None).await?.try_collect().await?;
        expect("rows", rows, [30])
    })
    .await;
    step("ttl-expires", async {
        items.create_item("p-ttl", "t", json!({"id": "t", "pk": "p-ttl", "ttl": 30}), None).await?;
        items.read_item("p-ttl", "t", None).await?;
        control("POST", "/clock", json!({"advanceSeconds": 31}))?;
        refused(items.read_item("p-ttl", "t", None).await, 404)
    })
    .await;
    step("throttled-429-retried", async {
        let rule = json!({"operations": "read", "database": database_name(), "container": "items", "count": 2, "status": 429, "retryAfterMs": 10});
        let made = control("POST", "/faults", rule)?;
        let found: Value = items.read_item("p-03", "i-03", None).await?.into_model()?;
        let seen = control("GET", &format!("/faults/{}", made["id"]), Value::Null)?;
        control("DELETE", "/faults", Value::Null)?;
        expect("refusals and answer", (seen["hits"].as_i64(), found["n"].as_i64()), (Some(2), Some(3)))
    })
    .await;
    step("range-gone-410-retried", async {
        let rule = json!({"operations": "query", "database": database_name(), "container": "items", "count": 1, "status": 410, "subStatus": 1002});
        control("POST", "/faults", rule)?;
        let answer = items.query_items::<i64>("SELECT VALUE c.n FROM c WHERE c.n < 3", FeedScope::full_container(), None).await;
        let rows: Result<Vec<i64>, _> = match answer {
            Ok(found) => found.try_collect().await,
            Err(error) => Err(error),
        };
        control("DELETE", "/faults", Value::Null)?;
        expect("rows", rows?.len(), 3)
    })
    .await;
}

pub async fn throughput_and_limits(account: &Account, items: &ContainerClient) {
    step("throughput-read", async {
        let found = items.read_throughput(None).await?.ok_or("no throughput")?;
        expect("throughput", found.throughput(), Some(20_000))
    })
    .await;
    step("throughput-replace", async {
        items.begin_replace_throughput(ThroughputProperties::manual(15_000), None).await?.await?;
        let found = items.read_throughput(None).await?.ok_or("no throughput")?;
        expect("throughput", found.throughput(), Some(15_000))
    })
    .await;
    step("throughput-autoscale", async {
        let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::autoscale(4000, Some(10)));
        account.database.create_container(ContainerProperties::new("scaling", "/pk".into()), Some(options)).await?;
        let found = account.container("scaling").await?.read_throughput(None).await?.ok_or("no throughput")?;
        expect("maximum", found.autoscale_maximum(), Some(4000))
    })
    .await;
    step("throughput-of-database-none", async {
        expect("none", account.database.read_throughput(None).await?.is_none(), true)
    })
    .await;
    step("large-item-refused-413", async {
        let large = json!({"id": "large", "pk": "p-large", "text": "x".repeat(2 * 1024 * 1024)});
        refused(items.create_item("p-large", "large", large, None).await, 413)
    })
    .await;
    step("unique-key-409", async {
        let policy = UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/mail"));
        account.database.create_container(ContainerProperties::new("unique", "/pk".into()).with_unique_key_policy(policy), None).await?;
        let unique = account.container("unique").await?;
        unique.create_item("a", "1", json!({"id": "1", "pk": "a", "mail": "m"}), None).await?;
        refused(unique.create_item("a", "2", json!({"id": "2", "pk": "a", "mail": "m"}), None).await, 409)
    })
    .await;
    step("number-partition-keys", async {
        let key = PartitionKey::try_from(1.5)?;
        let answer = items.create_item(key.clone(), "number", json!({"id": "number", "pk": 1.5}), with_content()).await?;
        expect("key", &answer.into_model::<Value>()?["pk"], 1.5)?;
        items.read_item(key, "number", None).await?;
        Ok(())
    })
    .await;
    step("null-partition-keys", async {
        items.create_item(PartitionKey::NULL, "null", json!({"id": "null", "pk": null}), None).await?;
        items.read_item(PartitionKey::NULL, "null", None).await?;
        Ok(())
    })
    .await;
    step("container-deleted-and-made-again", async {
        account.database.create_container(ContainerProperties::new("again", "/pk".into()), None).await?;
        let again = account.container("again").await?;
        again.create_item("a", "1", json!({"id": "1", "pk": "a"}), None).await?;
        account.container("again").await?.delete(None).await?;
        account.database.create_container(ContainerProperties::new("again", "/pk".into()), None).await?;
        again.create_item("a", "1", json!({"id": "1", "pk": "a"}), None).await?;
        again.read_item("a", "1", None).await?;
        Ok(())
    })
    .await;
}
