//! Databases and containers.

use crate::steps::{expect, missing, step};
use crate::{Account, database_name, refused};
use azure_data_cosmos::Query;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{
    CompositeIndex, CompositeIndexOrder, CompositeIndexProperty, ContainerProperties, IndexingPolicy, ThroughputProperties,
    TimeToLive,
};
use azure_data_cosmos::options::CreateContainerOptions;
use futures::TryStreamExt;

pub async fn create(account: &Account) {
    let name = database_name();
    step("create-database", async {
        let created = account.client.create_database(&name, None).await?.into_model()?;
        expect("id", created.id, Some(name.clone()))
    })
    .await;
    step("create-database-again-409", async { refused(account.client.create_database(&name, None).await, 409) }).await;
    step("read-database", async {
        let found = account.database.read(None).await?.into_model()?;
        expect("id", found.id, Some(name.clone()))
    })
    .await;
    step("query-databases", async {
        let query = Query::from("SELECT * FROM c WHERE c.id = @id").with_parameter("@id", &name)?;
        let found: Vec<_> = account.client.query_databases(query, None).await?.try_collect().await?;
        expect("count", found.len(), 1)
    })
    .await;
    step("create-container-four-partitions", async {
        // The default of `automatic` is false, with which no item is indexed.
        let mut policy = IndexingPolicy::default().with_included_path("/*").with_composite_index(
            CompositeIndex::default()
                .with_property(CompositeIndexProperty::new("/team", CompositeIndexOrder::Ascending))
                .with_property(CompositeIndexProperty::new("/n", CompositeIndexOrder::Descending)),
        );
        policy.automatic = true;
        let properties = ContainerProperties::new("items", "/pk".into()).with_indexing_policy(policy);
        let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(20_000));
        account.database.create_container(properties, Some(options)).await?;
        let ranges = account.container("items").await?.read_feed_ranges(None).await?;
        expect("feed ranges", ranges.len(), 4)
    })
    .await;
    step("read-container", async {
        let found = account.container("items").await?.read(None).await?.into_model()?;
        let policy = found.indexing_policy.ok_or("no indexing policy")?;
        expect("composite indexes", policy.composite_indexes.len(), 1)
    })
    .await;
    step("query-containers", async {
        let found: Vec<_> = account.database.query_containers("SELECT * FROM c", None).await?.try_collect().await?;
        expect("names", found.iter().map(|each| each.id.as_ref()).collect::<Vec<_>>(), ["items"])
    })
    .await;
    step("replace-container", async {
        let container = account.container("items").await?;
        let properties = container.read(None).await?.into_model()?.with_default_ttl(TimeToLive::NoDefault);
        let replaced = container.replace(properties, None).await?.into_model()?;
        expect("time to live", replaced.default_ttl == TimeToLive::NoDefault, true)
    })
    .await;
    step("open-missing-container-404", async { refused(account.container("none").await, 404) }).await;
    missing("bulk", "azure_data_cosmos has no bulk mode; the items are created one by one").await;
}

pub async fn delete(account: &Account, container: &ContainerClient) {
    step("delete-container", async {
        container.delete(None).await?;
        refused(container.read(None).await, 404)
    })
    .await;
    step("delete-database", async {
        account.database.delete(None).await?;
        refused(account.database.read(None).await, 404)
    })
    .await;
}
