//! Drives azure_data_cosmos, the Rust client of the SQL API, through the steps of tests/clients.

mod items;
mod queries;
mod resources;
mod server;
mod steps;

use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::options::{
    ConnectionPoolOptions, ContentResponseOnWrite, ItemWriteOptions, OperationOptions, ServerCertificateValidation,
};
use azure_data_cosmos::{AccountReference, CosmosClient, CosmosError, CosmosRuntime, RoutingStrategy};
use serde_json::{Value, json};
use steps::{Checked, Outcome, step};

pub const ITEM_COUNT: usize = 60;

pub fn database_name() -> String {
    std::env::var("ARMILLARY_DATABASE").unwrap_or_default()
}

/// Sixty items of twelve partition keys lie in all partitions: n counts them, team is one of three.
pub fn sample(number: usize) -> Value {
    json!({"id": format!("i-{number:02}"), "pk": format!("p-{:02}", number % 12), "n": number,
        "team": format!("t{}", number % 3), "price": number as f64 * 1.5, "tags": ["all", format!("t{}", number % 2)]})
}

pub fn sample_key(number: usize) -> String {
    format!("p-{:02}", number % 12)
}

/// Passes if the request was refused with this status.
pub fn refused<T>(answer: Result<T, CosmosError>, status: u16) -> Checked {
    match answer {
        Ok(_) => Err(Outcome::Failed(format!("want status {status}, but it was accepted"))),
        Err(error) if u16::from(error.status().status_code()) == status => Ok(()),
        Err(error) => Err(Outcome::Failed(format!("want status {status}, got {error}"))),
    }
}

pub fn with_content() -> Option<ItemWriteOptions> {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    Some(ItemWriteOptions::default().with_operation_options(operation))
}

async fn connect(key: &str) -> Result<CosmosClient, CosmosError> {
    let endpoint = std::env::var("ARMILLARY_ENDPOINT").unwrap_or_default();
    let pool = ConnectionPoolOptions::builder()
        .with_server_certificate_validation(ServerCertificateValidation::RequiredUnlessEmulator)
        .build()?;
    let runtime = CosmosRuntime::builder().with_connection_pool(pool).build().await?;
    let account = AccountReference::with_authentication_key(endpoint.parse()?, key.to_owned());
    let strategy = RoutingStrategy::ProximityTo("South Central US".into());
    CosmosClient::builder().with_runtime(runtime).build(account, strategy).await
}

/// What the steps work on.
pub struct Account {
    pub client: CosmosClient,
    pub database: DatabaseClient,
}

impl Account {
    pub async fn container(&self, name: &'static str) -> Result<ContainerClient, CosmosError> {
        self.database.container_client(name, None).await
    }
}

#[tokio::main]
async fn main() {
    let key = std::env::var("ARMILLARY_KEY").unwrap_or_default();
    let client = match connect(&key).await {
        Ok(client) => client,
        Err(error) => return println!("failed connect: {error}"),
    };
    println!("ok connect");
    let database = client.database_client(database_name());
    let account = Account { client, database };
    resources::create(&account).await;
    let container = match account.container("items").await {
        Ok(container) => container,
        Err(error) => return println!("failed open-container: {error}"),
    };
    println!("ok open-container");
    items::point_operations(&container).await;
    items::batches(&container).await;
    items::hierarchical_keys(&account).await;
    queries::all(&container).await;
    server::feeds(&account, &container).await;
    server::scripts_and_time(&container).await;
    server::throughput_and_limits(&account, &container).await;
    step("wrong-key-401", async {
        let other = match connect("d3Jvbmcga2V5").await {
            Err(error) => return refused::<()>(Err(error), 401),
            Ok(other) => other,
        };
        refused(other.database_client(database_name()).read(None).await, 401)
    })
    .await;
    resources::delete(&account, &container).await;
}
