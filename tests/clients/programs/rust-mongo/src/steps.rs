//! Named steps with their outcomes, and the server's control API.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;

pub struct Failed(pub String);

pub type Checked<T = ()> = Result<T, Failed>;

impl<E: Display> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed(error.to_string())
    }
}

/// Runs one named check and prints its outcome. A failure does not end the program.
pub async fn step(name: &str, run: impl Future<Output = Checked>) {
    match run.await {
        Ok(()) => println!("ok {name}"),
        Err(Failed(why)) => println!("failed {name}: {}", why.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

pub fn expect<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, want: U) -> Checked {
    if got == want {
        return Ok(());
    }
    Err(Failed(format!("{what}: got {got:?}, want {want:?}")))
}

pub fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// A request to the control API with a body of JSON: splits, fault rules, the clock. Returns the answer's text.
pub fn control(method: &str, path: &str, body: &str) -> Checked<String> {
    let address = setting("ARMILLARY_CONTROL");
    let (host, folder) = address.trim_start_matches("http://").split_once('/').ok_or("ARMILLARY_CONTROL is no address")?;
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "{method} /{folder}{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        setting("ARMILLARY_CONTROL_KEY"),
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").ok_or("no answer of the control API")?;
    let status: u16 = head.split(' ').nth(1).unwrap_or("0").parse()?;
    if status >= 300 {
        return Err(Failed(format!("control {method} {path}: {status} {text}")));
    }
    Ok(text.to_owned())
}

/// Splits the largest partition of a collection and returns when the split is done.
pub fn split_partition(database: &str, collection: &str) -> Checked {
    let path = format!("/databases/{database}/containers/{collection}");
    control("POST", &format!("{path}/split"), "{}")?;
    for _ in 0..10_000 {
        if control("GET", &format!("{path}/reshapes"), "")?.replace(' ', "").contains("\"reshapes\":[]") {
            return Ok(());
        }
    }
    Err(Failed("the split did not end".to_owned()))
}
