//! Point operations, batches and hierarchical keys.

use crate::steps::{expect, step};
use crate::{Account, ITEM_COUNT, refused, sample, sample_key, with_content};
use azure_core::http::Etag;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{
    ContainerProperties, PartitionKeyDefinition, PatchInstructions, PatchOperation, ThroughputProperties,
};
use azure_data_cosmos::options::{
    BatchOptions, BatchReplaceOptions, ContentResponseOnWrite, CreateContainerOptions, ItemReadOptions, ItemWriteOptions,
    OperationOptions, PatchItemOptions, PatchStrategy, Precondition,
};
use azure_data_cosmos::{FeedScope, PartitionKey, TransactionalBatch};
use futures::TryStreamExt;
use serde_json::{Value, json};

pub async fn point_operations(items: &ContainerClient) {
    let mut single = json!({"id": "one", "pk": "p-single", "n": -1, "name": "first", "tags": ["a"]});
    let mut etag = Etag::from("");
    let mut session = None;
    step("create-item", async {
        let answer = items.create_item("p-single", "one", &single, with_content()).await?;
        etag = answer.headers().etag().ok_or("no etag")?.clone();
        session = answer.headers().session_token().cloned();
        expect("charge", answer.headers().request_charge().is_some(), true)?;
        expect("name", &answer.into_model::<Value>()?["name"], "first")
    })
    .await;
    step("create-item-without-content", async {
        let answer = items.create_item("p-single", "two", json!({"id": "two", "pk": "p-single"}), None).await?;
        expect("status", u16::from(answer.status().status_code()), 201)
    })
    .await;
    step("create-item-again-409", async {
        refused(items.create_item("p-single", "one", &single, None).await, 409)
    })
    .await;
    step("read-item", async {
        let answer = items.read_item("p-single", "one", None).await?;
        expect("etag", answer.headers().etag(), Some(&etag))?;
        expect("tags", &answer.into_model::<Value>()?["tags"], &json!(["a"]))
    })
    .await;
    step("read-missing-item-404", async { refused(items.read_item("p-single", "none", None).await, 404) }).await;
    step("read-item-not-modified-304", async {
        let options = ItemReadOptions::default().with_precondition(Precondition::IfNoneMatch(etag.clone()));
        match items.read_item("p-single", "one", Some(options)).await {
            Ok(answer) => expect("status", u16::from(answer.status().status_code()), 304),
            Err(error) => refused::<()>(Err(error), 304),
        }
    })
    .await;
    step("session-read-own-write", async {
        let token = session.clone().ok_or("no session token")?;
        let options = ItemReadOptions::default().with_session_token(token);
        let found: Value = items.read_item("p-single", "one", Some(options)).await?.into_model()?;
        expect("name", &found["name"], "first")
    })
    .await;
    step("upsert-item", async {
        single["name"] = "second".into();
        let answer = items.upsert_item("p-single", "one", &single, with_content()).await?;
        expect("status", u16::from(answer.status().status_code()), 200)?;
        expect("name", &answer.into_model::<Value>()?["name"], "second")
    })
    .await;
    step("replace-item", async {
        single["name"] = "third".into();
        let answer = items.replace_item("p-single", "one", &single, with_content()).await?;
        expect("name", &answer.into_model::<Value>()?["name"], "third")
    })
    .await;
    step("replace-with-stale-etag-412", async {
        let options = ItemWriteOptions::default().with_precondition(Precondition::IfMatch(etag.clone()));
        refused(items.replace_item("p-single", "one", &single, Some(options)).await, 412)
    })
    .await;
    patches(items).await;
    step("values-of-all-kinds", async {
        let values = json!({"id": "kinds", "pk": "p-kinds", "null": null, "true": true, "small": 7, "large": 9007199254740991_i64,
            "negative": -123456, "fraction": 0.1, "huge": 1e300, "text": "größe 数据 🌍", "long": "x".repeat(5000),
            "guid": "0f8fad5b-d9cb-469f-a165-70867728950e", "date": "2026-11-17T23:00:00.0000000Z", "base64": "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=",
            "hex": "0123456789abcdef0123456789abcdef", "deep": [[[], [1, 2, 3]], {"a": {"b": [1.5, 2.5]}}], "numbers": [1, 2, 3, 4, 5, 6], "": "empty name"});
        items.create_item("p-kinds", "kinds", &values, None).await?;
        let mut found: Value = items.read_item("p-kinds", "kinds", None).await?.into_model()?;
        let fields = found.as_object_mut().ok_or("no object")?;
        fields.retain(|name, _| !matches!(name.as_str(), "_rid" | "_self" | "_etag" | "_attachments" | "_ts"));
        items.delete_item("p-kinds", "kinds", None).await?;
        expect("item", found, values)
    })
    .await;
    step("unicode-ids", async {
        let id = "größe 数据 🌍 'quoted' +%";
        items.create_item("p-single", id, json!({"id": id, "pk": "p-single"}), None).await?;
        let found: Value = items.read_item("p-single", id, None).await?.into_model()?;
        items.delete_item("p-single", id, None).await?;
        expect("id", &found["id"], id)
    })
    .await;
    step("unicode-partition-keys", async {
        let key = "schlüssel 数 🔑";
        items.create_item(key, "u", json!({"id": "u", "pk": key}), None).await?;
        let found: Value = items.read_item(key, "u", None).await?.into_model()?;
        items.delete_item(key, "u", None).await?;
        expect("key", &found["pk"], key)
    })
    .await;
    step("delete-item", async {
        for id in ["one", "two"] {
            items.delete_item("p-single", id, None).await?;
        }
        refused(items.read_item("p-single", "one", None).await, 404)
    })
    .await;
    step("create-sixty-items", async {
        for number in 0..ITEM_COUNT {
            let item = sample(number);
            items.create_item(sample_key(number), item["id"].as_str().unwrap_or(""), &item, None).await?;
        }
        Ok(())
    })
    .await;
}

async fn patches(items: &ContainerClient) {
    for (name, strategy) in [("patch-item", PatchStrategy::ServerSide), ("patch-item-on-the-client", PatchStrategy::ClientSide)] {
        step(name, async {
            items.upsert_item("p-single", "one", json!({"id": "one", "pk": "p-single", "n": -1, "tags": ["a"]}), None).await?;
            let patch = PatchInstructions::new()
                .with_operation(PatchOperation::set("/name", "fourth".into()))
                .with_operation(PatchOperation::add("/tags/-", "b".into()))
                .with_operation(PatchOperation::increment("/n", 5_i64))
                .with_operation(PatchOperation::add("/extra", json!({"deep": true})))
                .with_operation(PatchOperation::replace("/extra/deep", false.into()))
                .with_operation(PatchOperation::move_value("/extra", "/moved"))
                .with_operation(PatchOperation::remove("/moved"));
            items.patch_item("p-single", "one", patch, Some(PatchItemOptions::default().with_strategy(strategy))).await?;
            let found: Value = items.read_item("p-single", "one", None).await?.into_model()?;
            expect("item", json!([found["name"], found["tags"], found["n"], found["moved"]]), json!(["fourth", ["a", "b"], 4, null]))
        })
        .await;
    }
    step("patch-missing-item-404", async {
        let patch = PatchInstructions::new().with_operation(PatchOperation::set("/name", "never".into()));
        refused(items.patch_item("p-single", "none", patch, None).await, 404)
    })
    .await;
}

pub async fn batches(items: &ContainerClient) {
    let document = |id: &str, value: i64| json!({"id": id, "pk": "p-batch", "v": value});
    step("batch", async {
        let batch = TransactionalBatch::new("p-batch")
            .create_item(document("b1", 1))?
            .create_item(document("b2", 2))?
            .upsert_item(document("b3", 3), None)?
            .replace_item("b2", document("b2", 22), None)?
            .read_item("b2", None)
            .delete_item("b3", None);
        let mut operation = OperationOptions::default();
        operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
        let answer = items.execute_transactional_batch(batch, Some(BatchOptions::default().with_operation_options(operation))).await?;
        let answer = answer.into_model()?;
        let statuses: Vec<u16> = answer.results().iter().map(|each| each.status_code()).collect();
        expect("statuses", statuses, [201, 201, 201, 200, 200, 204])?;
        let read: Option<Value> = answer.results()[4].into_model()?;
        expect("value", &read.unwrap_or_default()["v"], 22)
    })
    .await;
    step("batch-rolls-back", async {
        let batch = TransactionalBatch::new("p-batch").create_item(document("b9", 9))?.create_item(document("b1", 1))?;
        match items.execute_transactional_batch(batch, None).await {
            Ok(answer) => {
                let answer = answer.into_model()?;
                let statuses: Vec<u16> = answer.results().iter().map(|each| each.status_code()).collect();
                expect("statuses", statuses, [424, 409])?;
            }
            Err(error) => refused::<()>(Err(error), 409)?,
        }
        refused(items.read_item("p-batch", "b9", None).await, 404)
    })
    .await;
    step("batch-with-stale-etag-412", async {
        let stale = BatchReplaceOptions::default().with_precondition(Precondition::IfMatch(Etag::from("\"stale\"")));
        let batch = TransactionalBatch::new("p-batch").replace_item("b1", document("b1", 0), Some(stale))?;
        match items.execute_transactional_batch(batch, None).await {
            Ok(answer) => {
                let answer = answer.into_model()?;
                expect("status", answer.results()[0].status_code(), 412)?;
            }
            Err(error) => refused::<()>(Err(error), 412)?,
        }
        for id in ["b1", "b2"] {
            items.delete_item("p-batch", id, None).await?;
        }
        Ok(())
    })
    .await;
}

fn tenant_key(number: usize) -> PartitionKey {
    PartitionKey::from((format!("t{}", number % 2), format!("u{}", number % 3), format!("s{number}")))
}

pub async fn hierarchical_keys(account: &Account) {
    step("hierarchical-keys-create", async {
        let definition = PartitionKeyDefinition::from(("/tenant", "/user", "/session"));
        let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(20_000));
        account.database.create_container(ContainerProperties::new("tenants", definition), Some(options)).await?;
        let tenants = account.container("tenants").await?;
        for number in 0..12 {
            let item = json!({"id": number.to_string(), "tenant": format!("t{}", number % 2), "user": format!("u{}", number % 3),
                "session": format!("s{number}"), "n": number});
            tenants.create_item(tenant_key(number), &number.to_string(), item, None).await?;
        }
        Ok(())
    })
    .await;
    step("hierarchical-keys-read", async {
        let found: Value = account.container("tenants").await?.read_item(tenant_key(5), "5", None).await?.into_model()?;
        expect("n", &found["n"], 5)
    })
    .await;
    step("hierarchical-keys-query-prefix", async {
        let tenants = account.container("tenants").await?;
        let scope = FeedScope::partition(PartitionKey::from(("t1", "u0")));
        let rows: Vec<i64> = tenants.query_items::<i64>("SELECT VALUE c.n FROM c ORDER BY c.n", scope, None).await?.try_collect().await?;
        expect("rows", rows, [3, 9])
    })
    .await;
    step("hierarchical-keys-query-filter", async {
        let tenants = account.container("tenants").await?;
        let query = "SELECT VALUE c.n FROM c WHERE c.tenant = 't0' ORDER BY c.n DESC";
        let rows: Vec<i64> = tenants.query_items::<i64>(query, FeedScope::full_container(), None).await?.try_collect().await?;
        expect("rows", rows, [10, 8, 6, 4, 2, 0])
    })
    .await;
    step("hierarchical-keys-query-whole-key", async {
        let tenants = account.container("tenants").await?;
        let rows: Vec<i64> =
            tenants.query_items::<i64>("SELECT VALUE c.n FROM c", FeedScope::partition(tenant_key(4)), None).await?.try_collect().await?;
        expect("rows", rows, [4])
    })
    .await;
}
