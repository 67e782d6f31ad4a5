//! Serves the agents that the other programs of this folder call.

#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../guide/asking.rs"]
mod asking;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../guide/remembering.rs"]
mod remembering;

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    let agents = trilogue::Agents::new().with(asking::Cleaner).with(remembering::Counter);
    trilogue::serve(agents, trilogue::ServeOptions::from_args()?).await
}
