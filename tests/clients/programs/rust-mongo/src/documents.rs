//! Writes, reads, aggregations and indexes.

use crate::steps::{Checked, Failed, control, expect, setting, split_partition, step};
use crate::{person, refused};
use futures::TryStreamExt;
use mongodb::bson::{Bson, Document, doc, oid::ObjectId};
use mongodb::error::ErrorKind;
use mongodb::options::{IndexOptions, ReturnDocument};
use mongodb::{Cursor, Database, IndexModel};
use std::time::Duration;

const ONE: fn() -> Document = || doc! {"_id": "one", "region": "single"};

async fn numbers(cursor: Cursor<Document>) -> Checked<Vec<i32>> {
    let found: Vec<Document> = cursor.try_collect().await?;
    found.iter().map(|each| Ok(each.get_i32("n")?)).collect()
}

pub async fn writes(database: &Database) {
    let people = database.collection::<Document>("people");
    step("insert-one", async {
        let answer = people.insert_one(doc! {"_id": "one", "region": "single", "n": -1}).await?;
        expect("id", answer.inserted_id, Bson::from("one"))
    })
    .await;
    step("insert-duplicate-11000", async { refused(people.insert_one(ONE()).await, 11000) }).await;
    step("insert-many", async {
        expect("count", people.insert_many((0..60).map(person)).await?.inserted_ids.len(), 60)
    })
    .await;
    step("insert-many-unordered-continues", async {
        let documents = [doc! {"_id": "one", "region": "single"}, doc! {"_id": "two", "region": "single"}];
        match people.insert_many(documents).ordered(false).await {
            Err(error) => match *error.kind {
                ErrorKind::InsertMany(ref each) => expect("errors", each.write_errors.as_ref().map_or(0, Vec::len), 1)?,
                _ => return Err(Failed(error.to_string())),
            },
            Ok(_) => return Err(Failed("accepted".to_owned())),
        }
        expect("deleted", people.delete_one(doc! {"_id": "two", "region": "single"}).await?.deleted_count, 1)
    })
    .await;
    step("update-one", async {
        let update = doc! {"$set": {"name": "first"}, "$inc": {"n": 5}, "$push": {"tags": {"$each": ["a", "b"]}}};
        let answer = people.update_one(ONE(), update).await?;
        expect("counts", (answer.matched_count, answer.modified_count), (1, 1))
    })
    .await;
    step("update-many", async {
        let answer = people.update_many(doc! {"team": "t0"}, doc! {"$set": {"marked": true}}).await?;
        expect("modified", answer.modified_count, 20)
    })
    .await;
    step("update-with-pipeline", async {
        people.update_one(ONE(), vec![doc! {"$set": {"double": {"$multiply": ["$n", 2]}}}]).await?;
        expect("double", people.find_one(ONE()).await?.ok_or("none")?.get_i32("double")?, 8)
    })
    .await;
    step("update-array-filters", async {
        people.update_one(ONE(), doc! {"$set": {"tags.$[tag]": "z"}}).array_filters([doc! {"tag": "b"}]).await?;
        let found = people.find_one(ONE()).await?.ok_or("none")?;
        expect("tags", found.get_array("tags")?.clone(), vec![Bson::from("a"), Bson::from("z")])
    })
    .await;
    let new = || doc! {"_id": "new", "region": "single"};
    step("upsert", async {
        let answer = people.update_one(new(), doc! {"$set": {"n": 1}}).upsert(true).await?;
        expect("id", answer.upserted_id, Some(Bson::from("new")))
    })
    .await;
    step("replace-one", async {
        let answer = people.replace_one(new(), doc! {"region": "single", "n": 2}).await?;
        expect("modified", answer.modified_count, 1)
    })
    .await;
    step("find-one-and-update", async {
        let found = people.find_one_and_update(new(), doc! {"$inc": {"n": 3}}).return_document(ReturnDocument::After).await?;
        expect("n", found.ok_or("none")?.get_i32("n")?, 5)
    })
    .await;
    step("find-one-and-replace", async {
        let found = people.find_one_and_replace(new(), doc! {"region": "single", "n": 9}).await?;
        expect("n before", found.ok_or("none")?.get_i32("n")?, 5)
    })
    .await;
    step("find-one-and-delete", async {
        expect("n", people.find_one_and_delete(new()).await?.ok_or("none")?.get_i32("n")?, 9)
    })
    .await;
    step("delete-one", async { expect("deleted", people.delete_one(ONE()).await?.deleted_count, 1) }).await;
    step("unicode-ids", async {
        let id = "größe 数据 🌍 $.'";
        people.insert_one(doc! {"_id": id, "region": id}).await?;
        expect("deleted", people.delete_many(doc! {"region": id}).await?.deleted_count, 1)
    })
    .await;
    step("all-types-round-trip", async {
        let kinds = doc! {"_id": ObjectId::parse_str("0102030405060708090a0b0c")?, "region": "types", "double": 1.5, "int32": -3, "int64": 1_i64 << 60,
            "null": Bson::Null, "true": true, "nested": {"a": [1, "b", [2.5]]}, "min": Bson::MinKey, "max": Bson::MaxKey,
            "decimal": "12345.6789000001".parse::<mongodb::bson::Decimal128>()?, "date": mongodb::bson::DateTime::from_millis(1_234_567_890_123)};
        people.insert_one(kinds.clone()).await?;
        let found = people.find_one(doc! {"region": "types"}).await?.ok_or("none")?;
        people.delete_many(doc! {"region": "types"}).await?;
        expect("document", found, kinds)
    })
    .await;
}

pub async fn reads(database: &Database) {
    let people = database.collection::<Document>("people");
    step("find-one", async {
        expect("n", people.find_one(doc! {"_id": "p-07", "region": "r7"}).await?.ok_or("none")?.get_i32("n")?, 7)
    })
    .await;
    step("find-missing", async { expect("none", people.find_one(doc! {"_id": "none"}).await?.is_none(), true) }).await;
    step("find-one-partition", async {
        expect("values", numbers(people.find(doc! {"region": "r3"}).sort(doc! {"n": -1}).await?).await?, [51, 39, 27, 15, 3])
    })
    .await;
    step("find-sorted-batches", async {
        let found = numbers(people.find(doc! {}).sort(doc! {"n": 1}).batch_size(7).await?).await?;
        expect("values", found, (0..60).collect::<Vec<_>>())
    })
    .await;
    step("find-skip-limit", async {
        let found = numbers(people.find(doc! {}).sort(doc! {"n": 1}).skip(10).limit(5).batch_size(2).await?).await?;
        expect("values", found, [10, 11, 12, 13, 14])
    })
    .await;
    step("find-projection", async {
        let found = people.find_one(doc! {"n": 7}).projection(doc! {"_id": 0, "home.city": 1, "n": 1}).await?;
        expect("document", found, Some(doc! {"home": {"city": "c2"}, "n": 7}))
    })
    .await;
    step("count-documents", async { expect("count", people.count_documents(doc! {"team": "t1"}).await?, 20) }).await;
    step("estimated-count", async { expect("count", people.estimated_document_count().await?, 60) }).await;
    step("distinct", async { expect("count", people.distinct("team", doc! {}).await?.len(), 3) }).await;
    step("split-underneath-cursor", async {
        let mut cursor = people.find(doc! {}).sort(doc! {"n": 1}).batch_size(20).await?;
        let first = cursor.try_next().await?.ok_or("none")?;
        split_partition(&setting("ARMILLARY_DATABASE"), "people")?;
        let mut found = vec![first.get_i32("n")?];
        found.extend(numbers(cursor).await?);
        expect("values", found, (0..60).collect::<Vec<_>>())
    })
    .await;
}

pub async fn aggregations(database: &Database) {
    let people = database.collection::<Document>("people");
    step("aggregate-group", async {
        let pipeline = [doc! {"$group": {"_id": "$team", "count": {"$sum": 1}, "total": {"$sum": "$n"}}}, doc! {"$sort": {"_id": 1}}];
        let found: Vec<Document> = people.aggregate(pipeline).await?.try_collect().await?;
        let want = [("t0", 570), ("t1", 590), ("t2", 610)].map(|(team, total)| doc! {"_id": team, "count": 20, "total": total});
        expect("rows", found, want)
    })
    .await;
    step("aggregate-unwind", async {
        let pipeline = [doc! {"$match": {"n": {"$lt": 3}}}, doc! {"$unwind": "$scores"}, doc! {"$group": {"_id": null, "total": {"$sum": "$scores"}}}];
        let found: Vec<Document> = people.aggregate(pipeline).await?.try_collect().await?;
        expect("rows", found, [doc! {"_id": null, "total": 9}])
    })
    .await;
    step("aggregate-lookup", async {
        database.collection::<Document>("teams").insert_one(doc! {"_id": "t1", "name": "one"}).await?;
        let lookup = doc! {"$lookup": {"from": "teams", "localField": "team", "foreignField": "_id", "as": "joined"}};
        let found: Vec<Document> = people.aggregate([doc! {"$match": {"n": 1}}, lookup]).await?.try_collect().await?;
        expect("joined", found[0].get_array("joined")?.clone(), vec![Bson::from(doc! {"_id": "t1", "name": "one"})])
    })
    .await;
    step("aggregate-out", async {
        let _: Vec<Document> = people.aggregate([doc! {"$match": {"team": "t2"}}, doc! {"$out": "copied"}]).await?.try_collect().await?;
        expect("count", database.collection::<Document>("copied").count_documents(doc! {}).await?, 20)
    })
    .await;
}

pub async fn indexes(database: &Database) {
    let people = database.collection::<Document>("people");
    step("index-create", async {
        let made = people.create_index(IndexModel::builder().keys(doc! {"team": 1, "n": -1}).build()).await?;
        expect("name", made.index_name, "team_1_n_-1")
    })
    .await;
    step("index-list", async { expect("names", people.list_index_names().await?, ["_id_", "team_1_n_-1"]) }).await;
    step("index-drop", async {
        people.drop_index("team_1_n_-1").await?;
        refused(people.drop_index("team_1_n_-1").await, 27)
    })
    .await;
    step("index-unique", async {
        let unique = database.collection::<Document>("unique");
        let options = IndexOptions::builder().unique(true).build();
        unique.create_index(IndexModel::builder().keys(doc! {"mail": 1}).options(options).build()).await?;
        unique.insert_one(doc! {"_id": 1, "mail": "m"}).await?;
        refused(unique.insert_one(doc! {"_id": 2, "mail": "m"}).await, 11000)
    })
    .await;
    step("ttl-expires", async {
        let fading = database.collection::<Document>("fading");
        let options = IndexOptions::builder().expire_after(Duration::from_secs(30)).build();
        fading.create_index(IndexModel::builder().keys(doc! {"_ts": 1}).options(options).build()).await?;
        fading.insert_one(doc! {"_id": 1}).await?;
        control("POST", "/clock", "{\"advanceSeconds\": 31}")?;
        expect("count", fading.count_documents(doc! {}).await?, 0)
    })
    .await;
}
