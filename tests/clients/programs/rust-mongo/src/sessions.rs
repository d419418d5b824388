//! Retries, sessions, transactions, change streams and GridFS.

use crate::refused;
use crate::steps::{Failed, control, expect, setting, step};
use futures::{AsyncReadExt, AsyncWriteExt, TryStreamExt};
use mongodb::bson::{Document, doc};
use mongodb::change_stream::event::OperationType;
use mongodb::{Client, Database};

fn fault(operations: &str, more: &str) -> Result<String, Failed> {
    let place = format!("\"database\": \"{}\", \"container\": \"accounts\"", setting("ARMILLARY_DATABASE"));
    control("POST", "/faults", &format!("{{\"operations\": \"{operations}\", {place}, \"count\": 1, \"drop\": true{more}}}"))
}

pub async fn sessions(client: &Client, database: &Database) {
    let accounts = database.collection::<Document>("accounts");
    step("retryable-write-applied-once", async {
        accounts.insert_one(doc! {"_id": "a", "balance": 100}).await?;
        fault("write", ", \"after\": true")?;
        let answer = accounts.update_one(doc! {"_id": "a"}, doc! {"$inc": {"balance": 1}}).await;
        control("DELETE", "/faults", "")?;
        answer?;
        expect("balance", accounts.find_one(doc! {"_id": "a"}).await?.ok_or("none")?.get_i32("balance")?, 101)
    })
    .await;
    step("retryable-read", async {
        fault("query", "")?;
        let answer = accounts.count_documents(doc! {"balance": {"$gt": 0}}).await;
        control("DELETE", "/faults", "")?;
        expect("count", answer?, 1)
    })
    .await;
    step("session-read-own-write", async {
        let mut session = client.start_session().await?;
        accounts.insert_one(doc! {"_id": "b", "balance": 0}).session(&mut session).await?;
        expect("found", accounts.find_one(doc! {"_id": "b"}).session(&mut session).await?.is_some(), true)
    })
    .await;
    step("transaction-commits", async {
        let mut session = client.start_session().await?;
        session.start_transaction().await?;
        accounts.update_one(doc! {"_id": "a"}, doc! {"$inc": {"balance": -40}}).session(&mut session).await?;
        accounts.update_one(doc! {"_id": "b"}, doc! {"$inc": {"balance": 40}}).session(&mut session).await?;
        database.collection::<Document>("plain").insert_one(doc! {"_id": "audit"}).session(&mut session).await?;
        session.commit_transaction().await?;
        expect("balance", accounts.find_one(doc! {"_id": "b"}).await?.ok_or("none")?.get_i32("balance")?, 40)
    })
    .await;
    step("transaction-aborts", async {
        let mut session = client.start_session().await?;
        session.start_transaction().await?;
        accounts.delete_one(doc! {"_id": "a"}).session(&mut session).await?;
        session.abort_transaction().await?;
        expect("found", accounts.find_one(doc! {"_id": "a"}).await?.is_some(), true)
    })
    .await;
    step("transaction-write-conflict", async {
        let mut session = client.start_session().await?;
        session.start_transaction().await?;
        accounts.find_one(doc! {"_id": "a"}).session(&mut session).await?;
        accounts.update_one(doc! {"_id": "a"}, doc! {"$inc": {"balance": 1}}).await?;
        let answer = accounts.update_one(doc! {"_id": "a"}, doc! {"$inc": {"balance": 1}}).session(&mut session).await;
        let answer = match answer {
            Ok(_) => session.commit_transaction().await,
            Err(error) => Err(error),
        };
        let is_transient = answer.as_ref().is_err_and(|error| error.contains_label("TransientTransactionError"));
        expect("transient", is_transient, true)?;
        refused(answer, 112)
    })
    .await;
    step("snapshot-session", async {
        let mut session = client.start_session().snapshot(true).await?;
        let before = accounts.find_one(doc! {"_id": "b"}).session(&mut session).await?;
        accounts.update_one(doc! {"_id": "b"}, doc! {"$inc": {"balance": 5}}).await?;
        expect("document", accounts.find_one(doc! {"_id": "b"}).session(&mut session).await?, before)
    })
    .await;
}

pub async fn streams(database: &Database) {
    let orders = database.collection::<Document>("orders");
    let mut token = None;
    step("change-stream", async {
        orders.insert_one(doc! {"_id": 0}).await?;
        let mut stream = orders.watch().await?;
        orders.insert_one(doc! {"_id": 1, "state": "new"}).await?;
        orders.update_one(doc! {"_id": 1}, doc! {"$set": {"state": "paid"}}).await?;
        orders.delete_one(doc! {"_id": 1}).await?;
        let mut kinds = vec![];
        while kinds.len() < 3 {
            kinds.push(stream.try_next().await?.ok_or("the stream ended")?.operation_type);
            if kinds.len() == 1 {
                token = stream.resume_token();
            }
        }
        expect("kinds", kinds, [OperationType::Insert, OperationType::Update, OperationType::Delete])
    })
    .await;
    step("change-stream-resumed", async {
        let mut stream = orders.watch().resume_after(token.clone().ok_or("no token")?).await?;
        expect("kind", stream.try_next().await?.ok_or("the stream ended")?.operation_type, OperationType::Update)
    })
    .await;
    step("change-stream-filtered", async {
        let mut stream = database.watch().pipeline([doc! {"$match": {"fullDocument.wanted": true}}]).await?;
        orders.insert_many([doc! {"_id": 2}, doc! {"_id": 3, "wanted": true}]).await?;
        expect("key", stream.try_next().await?.ok_or("the stream ended")?.document_key, Some(doc! {"_id": 3}))
    })
    .await;
}

pub async fn files(database: &Database) {
    let bucket = database.gridfs_bucket(None);
    let content = b"0123456789abcdef".repeat(40_000);
    step("gridfs-upload", async {
        let mut stream = bucket.open_upload_stream("file").await?;
        stream.write_all(&content).await?;
        Ok(stream.close().await?)
    })
    .await;
    step("gridfs-download", async {
        let mut found = vec![];
        bucket.open_download_stream_by_name("file").await?.read_to_end(&mut found).await?;
        expect("equal", found == content, true)
    })
    .await;
    step("gridfs-delete", async {
        let file = bucket.find_one(doc! {"filename": "file"}).await?.ok_or("none")?;
        bucket.delete(file.id).await?;
        expect("chunks", database.collection::<Document>("fs.chunks").count_documents(doc! {}).await?, 0)
    })
    .await;
}
