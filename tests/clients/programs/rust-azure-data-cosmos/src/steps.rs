//! Named steps with their outcomes, and the server's control API.

use serde_json::{Value, json};
use std::fmt::{Debug, Display};
use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;

pub enum Outcome {
    /// The client has no such feature.
    Missing(String),
    Failed(String),
}

pub type Checked<T = ()> = Result<T, Outcome>;

impl<E: Display> From<E> for Outcome {
    fn from(error: E) -> Self {
        Outcome::Failed(error.to_string())
    }
}

/// Runs one named check and prints its outcome. A failure does not end the program.
pub async fn step(name: &str, run: impl Future<Output = Checked>) {
    match run.await {
        Ok(()) => println!("ok {name}"),
        Err(Outcome::Missing(why)) => println!("missing {name}: {why}"),
        Err(Outcome::Failed(why)) => {
            let words: Vec<&str> = why.split_whitespace().collect();
            println!("failed {name}: {}", words.join(" "));
        }
    }
}

pub async fn missing(name: &str, why: &str) {
    step(name, async { Err(Outcome::Missing(why.to_owned())) }).await;
}

pub fn expect<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, want: U) -> Checked {
    if got == want {
        return Ok(());
    }
    Err(Outcome::Failed(format!("{what}: got {got:?}, want {want:?}")))
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// A request to the control API: splits, fault rules, the clock, scripts.
pub fn control(method: &str, path: &str, body: Value) -> Checked<Value> {
    let address = setting("ARMILLARY_CONTROL");
    let rest = address.trim_start_matches("http://");
    let (host, folder) = rest.split_once('/').ok_or("ARMILLARY_CONTROL is no address")?;
    let content = if method == "GET" || method == "DELETE" { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "{method} /{folder}{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{content}",
        setting("ARMILLARY_CONTROL_KEY"),
        content.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").ok_or("no answer of the control API")?;
    let status: u16 = head.split(' ').nth(1).unwrap_or("0").parse()?;
    if status >= 300 {
        return Err(Outcome::Failed(format!("control {method} {path}: {status} {text}")));
    }
    Ok(serde_json::from_str(text).unwrap_or(Value::Null))
}

/// Splits the largest partition of a container and returns when the split is done.
pub fn split_partition(database: &str, container: &str) -> Checked {
    let path = format!("/databases/{database}/containers/{container}");
    control("POST", &format!("{path}/split"), json!({}))?;
    for _ in 0..10_000 {
        let running = control("GET", &format!("{path}/reshapes"), Value::Null)?;
        if running["reshapes"].as_array().is_none_or(|all| all.is_empty()) {
            return Ok(());
        }
    }
    Err(Outcome::Failed("the split did not end".to_owned()))
}
