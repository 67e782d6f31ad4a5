use std::fs;

use super::*;

/// The times in the order of the members, short so that the tests are short.
const TIMES: LeaseTimes = LeaseTimes {
    renew_every: Duration::from_millis(50),
    expires_after: Duration::from_millis(500),
    gives_up_after: Duration::from_millis(300),
    look_every: Duration::from_millis(10),
    wait_limit: Duration::from_secs(2),
};

type Taken = Result<Option<Arc<WorkspaceLease>>>;

fn here() -> LeaseHolder {
    LeaseHolder::this_server("here")
}

/// A server of another machine.
fn elsewhere() -> LeaseHolder {
    LeaseHolder { boot: "another".to_owned(), node: "elsewhere".to_owned(), ..here() }
}

async fn take(holder: LeaseHolder, folder: &Path, epoch: u64) -> Taken {
    WorkspaceLease::take_as(holder, folder, ("thread-1".to_owned(), epoch), TIMES).await
}

async fn take_held(holder: LeaseHolder, folder: &Path, epoch: u64) -> Arc<WorkspaceLease> {
    take(holder, folder, epoch).await.unwrap().unwrap()
}

/// Leaves a lease without a holder that renews it.
fn leave(holder: &LeaseHolder, folder: &Path, epoch: u64) {
    let leases = LeaseFolder::new(folder, "thread-1".to_owned());
    let path = leases.path(epoch, Uuid::new_v4());
    leases.write(&path, &holder.to_content(("thread-1", epoch), 0)).unwrap();
}

#[tokio::test]
async fn a_lease_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let lease = take_held(here(), folder.path(), 1).await;
    let other = take_held(here(), folder.path(), 1).await;
    let ignored = fs::read_to_string(folder.path().join(".trilogue/.gitignore")).unwrap();
    assert_eq!(ignored, "*\n");
    drop(lease);
    assert!(other.is_held().await);
    drop(other);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_server_that_stops_releases_its_leases_although_a_session_holds_them() {
    let folder = tempfile::tempdir().unwrap();
    let children = crate::child::Children::open(None).await.unwrap();
    let lease = take_held(here(), folder.path(), 1).await;
    children.release_at_close(lease.as_child_lease());
    children.close().await;
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // A renewal that was at work meanwhile does not write it again.
    lease.0.renew().await;
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_server_that_was_killed_while_it_wrote_its_lease_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    leave(&elsewhere(), folder.path(), 1);
    let leases = folder.path().join(".trilogue/leases");
    let older = fs::read_dir(&leases).unwrap().next().unwrap().unwrap().path();
    fs::write(older.with_added_extension("new"), "half").unwrap();
    drop(take_held(here(), folder.path(), 2).await);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_newer_owner_waits_until_the_older_one_has_ended_its_agent() {
    let folder = tempfile::tempdir().unwrap();
    let older = take_held(elsewhere(), folder.path(), 1).await;
    let watch = older.watch();
    let newer = tokio::spawn({
        let folder = folder.path().to_owned();
        async move { take_held(here(), &folder, 2).await }
    });
    assert!(timeout(TIMES.wait_limit, watch.wait_for_loss()).await.unwrap());
    assert!(!older.is_held().await);
    assert!(!newer.is_finished(), "it does not wait for the agent's end");
    drop(older);
    let newer = newer.await.unwrap();
    let late = take(elsewhere(), folder.path(), 1).await;
    assert_eq!(late.unwrap_err().code(), Code::ThreadElsewhere);
    assert!(newer.is_held().await);
}

#[tokio::test]
async fn a_lease_without_renewals_expires() {
    let folder = tempfile::tempdir().unwrap();
    leave(&elsewhere(), folder.path(), 1);
    let began = Instant::now();
    let _newer = take_held(here(), folder.path(), 2).await;
    assert!(began.elapsed() >= TIMES.expires_after);
}

#[tokio::test]
async fn the_lease_of_a_dead_server_of_this_machine_has_no_time_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let gone = Identity { start: 1, ..here().server.unwrap() };
    leave(&LeaseHolder { server: Some(gone), ..here() }, folder.path(), 1);
    let began = Instant::now();
    let _newer = take_held(here(), folder.path(), 2).await;
    assert!(began.elapsed() < TIMES.expires_after);
}

#[tokio::test]
async fn a_holder_that_cannot_renew_its_lease_loses_it() {
    let folder = tempfile::tempdir().unwrap();
    let lease = take_held(here(), folder.path(), 1).await;
    let ours = folder.path().join(".trilogue");
    // The lease may be renewed meanwhile.
    while fs::remove_dir_all(&ours).is_err() {}
    assert!(lease.0.renew().await, "a folder that the agent has removed comes back");
    // A file in place of the folder: no lease can be read or written.
    while fs::write(&ours, "").is_err() {
        drop(fs::remove_dir_all(&ours));
    }
    assert!(timeout(TIMES.wait_limit, lease.watch().wait_for_loss()).await.unwrap());
}

#[tokio::test]
async fn leases_of_other_threads_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let times = TIMES;
    for thread in ["thread-11", "thread", "thread-1"] {
        let taken = WorkspaceLease::take_as(here(), folder.path(), (thread.to_owned(), 7), times);
        let lease = taken.await.unwrap().unwrap();
        let _other = take_held(here(), folder.path(), 8).await;
        assert_eq!(lease.0.renew().await, thread != "thread-1");
    }
}
