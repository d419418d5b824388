//! Queries of one partition and of all of them.

use crate::steps::{Checked, Outcome, expect, step};
use crate::{ITEM_COUNT, refused};
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::options::{MaxItemCountHint, QueryOptions, QueryPlanMode};
use azure_data_cosmos::{FeedScope, Query};
use futures::TryStreamExt;
use serde_json::{Value, json};
use std::num::NonZeroU32;

const MERGES_NO_AGGREGATES: &str = "azure_data_cosmos 1.0.0 merges no aggregates of several partitions; within one partition they work";

pub fn page_size(rows: u32) -> QueryOptions {
    QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::new(rows).expect("more than 0")))
}

/// The rows of all pages; none of them may be longer than asked for.
async fn rows(items: &ContainerClient, query: &str, scope: FeedScope, options: Option<QueryOptions>, limit: usize) -> Checked<Vec<Value>> {
    let mut pages = items.query_items::<Value>(query, scope, options).await?.into_pages();
    let mut found = vec![];
    while let Some(page) = pages.try_next().await? {
        expect("page is short enough", page.items().len() <= limit, true)?;
        found.extend(page.into_items());
    }
    Ok(found)
}

async fn whole(items: &ContainerClient, name: &str, query: &str, want: Value) {
    step(name, async { expect("rows", json!(rows(items, query, FeedScope::full_container(), None, 1000).await?), want) }).await;
}

async fn alone(items: &ContainerClient, name: &str, query: &str, want: Value) {
    step(name, async { expect("rows", json!(rows(items, query, FeedScope::partition("p-03"), None, 1000).await?), want) }).await;
}

pub async fn all(items: &ContainerClient) {
    alone(items, "query-one-partition", "SELECT VALUE c.n FROM c ORDER BY c.n DESC", json!([51, 39, 27, 15, 3])).await;
    alone(items, "query-one-partition-aggregates", "SELECT COUNT(1) AS count, SUM(c.n) AS total, AVG(c.n) AS mean FROM c",
        json!([{"count": 5, "total": 135, "mean": 27}])).await;
    alone(items, "query-one-partition-group-by", "SELECT c.team, COUNT(1) AS count FROM c GROUP BY c.team", json!([{"team": "t0", "count": 5}])).await;
    alone(items, "query-one-partition-distinct", "SELECT DISTINCT VALUE c.team FROM c", json!(["t0"])).await;
    step("query-parameters", async {
        let query = Query::from("SELECT VALUE c.n FROM c WHERE c.n > @least AND ARRAY_CONTAINS(c.tags, @tag)")
            .with_parameter("@least", 20)?
            .with_parameter("@tag", "t1")?;
        let found: Vec<i64> = items.query_items::<i64>(query, FeedScope::partition("p-03"), None).await?.try_collect().await?;
        expect("rows", found, [27, 39, 51])
    })
    .await;
    step("query-order-by-pages", async {
        let found = rows(items, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", FeedScope::full_container(), Some(page_size(7)), 7).await?;
        expect("rows", json!(found), json!((0..ITEM_COUNT).rev().collect::<Vec<_>>()))
    })
    .await;
    whole(items, "query-order-by-two-paths", "SELECT VALUE c.n FROM c WHERE c.n < 9 ORDER BY c.team ASC, c.n DESC",
        json!([6, 3, 0, 7, 4, 1, 8, 5, 2])).await;
    whole(items, "query-order-by-text", "SELECT VALUE c.id FROM c WHERE c.n < 4 ORDER BY c.id DESC", json!(["i-03", "i-02", "i-01", "i-00"])).await;
    whole(items, "query-top", "SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n", json!([0, 1, 2, 3, 4])).await;
    whole(items, "query-distinct", "SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team", json!(["t0", "t1", "t2"])).await;
    whole(items, "query-offset-limit", "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 5", json!([10, 11, 12, 13, 14])).await;
    step("query-distinct-unordered", async {
        let mut found = rows(items, "SELECT DISTINCT TOP 10 VALUE c.team FROM c", FeedScope::full_container(), None, 1000).await?;
        found.sort_by_key(|each| each.to_string());
        expect("rows", json!(found), json!(["t0", "t1", "t2"]))
    })
    .await;
    step("query-plan-of-the-gateway", async {
        let options = QueryOptions::default().with_query_plan_mode(QueryPlanMode::GatewayOnly);
        let found = rows(items, "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", FeedScope::full_container(), Some(options), 1000).await?;
        expect("rows", json!(found), json!([59, 58, 57]))
    })
    .await;
    step("query-filter-pages", async {
        let found = rows(items, "SELECT VALUE c.n FROM c WHERE c.n >= 30", FeedScope::full_container(), Some(page_size(4)), 4).await?;
        let total: i64 = found.iter().filter_map(Value::as_i64).sum();
        expect("count and sum", (found.len(), total), (30, 1335))
    })
    .await;
    step("query-join", async {
        let query = "SELECT VALUE t FROM c JOIN t IN c.tags WHERE t = 't1'";
        expect("rows", rows(items, query, FeedScope::full_container(), None, 1000).await?.len(), 30)
    })
    .await;
    step("query-feed-ranges", async {
        let mut count = 0;
        for range in items.read_feed_ranges(None).await? {
            count += rows(items, "SELECT * FROM c", FeedScope::range(range), None, 1000).await?.len();
        }
        expect("rows", count, ITEM_COUNT)
    })
    .await;
    for (name, query) in [("query-continuation-resumed", "SELECT VALUE c.n FROM c WHERE c.n >= 0"),
        ("query-order-by-continuation-resumed", "SELECT VALUE c.n FROM c ORDER BY c.n")] {
        step(name, async {
            let mut found: Vec<i64> = vec![];
            let mut options = page_size(9);
            for _ in 0..100 {
                let mut pages = items.query_items::<i64>(query, FeedScope::full_container(), Some(options)).await?.into_pages();
                let Some(page) = pages.try_next().await? else { break };
                found.extend(page.into_items());
                options = page_size(9).with_continuation_token(pages.to_continuation_token()?);
            }
            found.sort();
            expect("rows", found, (0..ITEM_COUNT as i64).collect::<Vec<_>>())
        })
        .await;
    }
    step("query-index-metrics", async {
        let options = QueryOptions::default().with_populate_index_metrics(true).with_populate_query_metrics(true);
        let mut pages = items.query_items::<Value>("SELECT * FROM c WHERE c.n = 3", FeedScope::partition("p-03"), Some(options)).await?.into_pages();
        let page = pages.try_next().await?.ok_or("no page")?;
        expect("index metrics", page.index_metrics().is_some(), true)?;
        expect("query metrics", page.query_metrics().is_some(), true)
    })
    .await;
    step("query-syntax-error-400", async {
        let answer = match items.query_items::<Value>("SELECT FROM WHERE", FeedScope::partition("p-03"), None).await {
            Ok(found) => found.try_collect::<Vec<_>>().await.map(|_| ()),
            Err(error) => Err(error),
        };
        refused(answer, 400)
    })
    .await;
    for (name, query) in [("query-count", "SELECT VALUE COUNT(1) FROM c"), ("query-sum", "SELECT VALUE SUM(c.price) FROM c"),
        ("query-avg", "SELECT VALUE AVG(c.n) FROM c"), ("query-min-max", "SELECT MIN(c.n) AS low, MAX(c.n) AS high FROM c"),
        ("query-group-by", "SELECT c.team, COUNT(1) AS count FROM c GROUP BY c.team")] {
        step(name, async {
            match rows(items, query, FeedScope::full_container(), None, 1000).await {
                Err(Outcome::Failed(why)) if why.contains("does not support") => Err(Outcome::Missing(MERGES_NO_AGGREGATES.to_owned())),
                Err(other) => Err(other),
                Ok(_) => Err(Outcome::Failed("want a refusal".to_owned())),
            }
        })
        .await;
    }
}
