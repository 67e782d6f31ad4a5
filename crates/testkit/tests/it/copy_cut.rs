//! A copy into a file that is interrupted leaves no store.

use trilogue_testkit::services::{new_schema, service};
use trilogue_testkit::shim::Shim;
use trilogue_testkit::{Folder, Home, ServerOptions};

use crate::kill_rounds::stop;
use crate::{echo, events};

/// The changes of the folder at which the copy is killed.
const CUTS: [u64; 6] = [2, 4, 8, 16, 32, 48];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_copy_is_no_store_and_says_so() {
    let (database, schema) = new_schema("copy_cut").await.unwrap();
    let from =
        format!("{}?options=-csearch_path%3D{schema}", service("TRILOGUE_POSTGRES").unwrap());
    let (source, target) = (Folder::new().unwrap(), Folder::new().unwrap());
    let options = ServerOptions { store: from.clone(), ..ServerOptions::default() };
    let server = Home::new(source.path(), &options).unwrap().start().await.unwrap();
    echo(&server.client(), "t", &"a long text ".repeat(2_000)).await.ok().unwrap();
    let expected = events(&server.client(), "t").await.unwrap();
    stop(server).await;

    let home = Home::new(target.path(), &ServerOptions::default()).unwrap();
    let shim = Shim::build(target.path(), &home.store_dir()).unwrap();
    let store = home.store_dir().join("trilogue.db");
    let to = format!("sqlite:{}", store.display());
    let copy = ["copy", &from, &to, "--with-runs"];
    let under_shim = home.clone().with_environment(shim.environment());
    let mut interrupted = 0;
    let draft = home.store_dir().join("trilogue.db.copying");
    for cut in CUTS {
        if draft.is_dir() {
            // A journal holds only files.
            std::fs::remove_dir_all(&draft).unwrap();
        }
        shim.begin_journal(Some(cut)).unwrap();
        let ended = under_shim.command(&copy).await.unwrap();
        if ended.status.success() {
            break;
        }
        interrupted += 1;
        assert!(!store.exists(), "cut {cut}: there is a store");
        if draft.exists() {
            let refused = format!("{:#}", home.start().await.unwrap_err());
            let names_it =
                refused.contains("was interrupted") && refused.contains("trilogue.db.copying");
            assert!(names_it, "cut {cut}: {refused}");
            assert!(!store.exists(), "cut {cut}: an empty store took its place");
        }
    }
    assert!(interrupted > 3, "{interrupted}");
    if !store.exists() {
        // The next copy replaces the leftovers of an interrupted one.
        let ended = home.command(&copy).await.unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }
    let server = home.start().await.unwrap();
    assert_eq!(events(&server.client(), "t").await.unwrap(), expected);
    assert!(!draft.exists());
    server.kill().await.unwrap();
    database.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}
