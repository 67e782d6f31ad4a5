//! A second process on the same store.

use std::time::Duration;

use trilogue_testkit::{Folder, Home, Server, ServerOptions};

use crate::{echo, events};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_on_the_same_store_names_the_first() {
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let client = server.client();
    echo(&client, "t", "one").await.ok().unwrap();

    // The same store from another folder, under another address.
    let other = Folder::new().unwrap();
    let store = server.home().store_dir().join("trilogue.db");
    let options =
        ServerOptions { store: format!("sqlite:{}", store.display()), ..ServerOptions::default() };
    let second = Home::new(other.path(), &options).unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(60), second.start()).await.unwrap();
    let message = format!("{:#}", refused.expect_err("two servers hold one store"));
    let pid = server.pid().unwrap().to_string();
    assert!(message.contains(&pid), "process {pid} is not named: {message}");

    // The first noticed nothing.
    echo(&client, "t", "two").await.ok().unwrap();
    assert!(!events(&client, "t").await.unwrap().is_empty());

    // A lock that a killed server left holds nobody up.
    let home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    echo(&server.client(), "t", "three").await.ok().unwrap();
}
