//! Drives the MongoDB Rust driver through the steps of tests/clients.

mod documents;
mod sessions;
mod steps;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use steps::{Checked, Failed, expect, setting, step};

/// Passes if the server refused the request with this code.
pub fn refused<T>(answer: Result<T, Error>, code: i32) -> Checked {
    let found = match answer {
        Ok(_) => return Err(Failed(format!("want code {code}, but it was accepted"))),
        Err(error) => match *error.kind {
            ErrorKind::Command(ref each) => each.code,
            ErrorKind::Write(WriteFailure::WriteError(ref each)) => each.code,
            _ => return Err(Failed(format!("want code {code}, got {error}"))),
        },
    };
    expect("code", found, code)
}

pub fn person(number: i32) -> Document {
    doc! {"_id": format!("p-{number:02}"), "region": format!("r{}", number % 12), "n": number, "team": format!("t{}", number % 3),
    "scores": [number, number * 2], "home": {"city": format!("c{}", number % 5)}}
}

#[tokio::main]
async fn main() {
    let client = match Client::with_uri_str(setting("ARMILLARY_MONGO")).await {
        Ok(client) => client,
        Err(error) => return println!("failed connect: {error}"),
    };
    println!("ok connect");
    let name = setting("ARMILLARY_DATABASE");
    let database = client.database(&name);
    step("ping", async { expect("ok", database.run_command(doc! {"ping": 1}).await?.get_f64("ok")?, 1.0) }).await;
    step("create-collection-four-partitions", async {
        let command = doc! {"customAction": "CreateCollection", "collection": "people", "shardKey": "region", "offerThroughput": 20000};
        database.run_command(command).await?;
        Ok(())
    })
    .await;
    step("create-collection", async { Ok(database.create_collection("plain").await?) }).await;
    step("list-collections", async {
        let names = database.list_collection_names().filter(doc! {"name": {"$in": ["people", "plain"]}}).await?;
        expect("count", names.len(), 2)
    })
    .await;
    step("list-databases", async {
        expect("names", client.list_database_names().filter(doc! {"name": &name}).await?, [name.clone()])
    })
    .await;
    step("unknown-command-refused", async { refused(database.run_command(doc! {"noSuchCommand": 1}).await, 59) }).await;
    documents::writes(&database).await;
    documents::reads(&database).await;
    documents::aggregations(&database).await;
    documents::indexes(&database).await;
    sessions::sessions(&client, &database).await;
    sessions::streams(&database).await;
    sessions::files(&database).await;
    step("drop-collection", async {
        let people = database.collection::<Document>("people");
        people.drop().await?;
        expect("count", people.count_documents(doc! {}).await?, 0)
    })
    .await;
    step("drop-database", async {
        database.drop().await?;
        expect("names", client.list_database_names().filter(doc! {"name": &name}).await?.len(), 0)
    })
    .await;
    client.shutdown().await;
}
