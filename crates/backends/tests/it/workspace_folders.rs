//! The folders in which agents work, and their worktrees.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use trilogue_backends::workspace::{CwdTemplate, Folders, Removal};
use trilogue_domain::{AgentName, ThreadId};

const THREAD: &str = "0191c0de-0000-7000-8000-000000000001";

fn folders(base: &Path, template: &str, repository: Option<&Path>) -> Folders {
    let agent = AgentName::parse("org.coder").unwrap();
    let template = CwdTemplate::parse(template).unwrap();
    Folders::new(base, template, repository, &agent).unwrap()
}

fn thread(id: &str) -> ThreadId {
    ThreadId::parse(id).unwrap()
}

/// Runs git and says what it said.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(identity).args(arguments);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with one commit.
fn repository(folder: &Path) {
    fs::create_dir(folder).unwrap();
    git(folder, &["init", "--quiet", "--initial-branch=main"]);
    fs::write(folder.join("file"), "one").unwrap();
    git(folder, &["add", "."]);
    git(folder, &["commit", "--quiet", "-m", "one"]);
}

#[tokio::test]
async fn each_thread_has_a_folder_that_nobody_else_enters() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "work/{thread}/src", None);
    let made = folders.prepare(&thread(THREAD)).await.unwrap();
    assert_eq!(made, base.path().join("work").join(THREAD).join("src"));
    for folder in [&made, made.parent().unwrap(), &base.path().join("work")] {
        assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700, "{folder:?}");
    }
    fs::write(made.join("file"), "x").unwrap();
    assert_eq!(folders.prepare(&thread(THREAD)).await.unwrap(), made);
    assert!(made.join("file").exists());
    let other = folders.prepare(&thread("other")).await.unwrap();
    assert_eq!(folders.remove(&thread(THREAD)).await.unwrap(), Removal::Gone);
    assert!(!base.path().join("work").join(THREAD).exists() && other.exists());
    assert_eq!(folders.remove(&thread(THREAD)).await.unwrap(), Removal::Gone);
}

#[tokio::test]
async fn no_thread_is_called_so_that_its_folder_lies_elsewhere() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "work/{thread}", None);
    let long = "x".repeat(200);
    let ids = ["..", ".", "a/b", "../../x", "/etc", "A", "a", "-rf", "ü", &long, "CON"];
    let made: Vec<_> = ids.iter().map(|id| folders.path(&thread(id))).collect();
    for (id, path) in ids.iter().zip(&made) {
        assert_eq!(path.parent(), Some(&*base.path().join("work")), "{id}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
        );
        assert!(!name.starts_with('-') && name.len() <= 64, "{name}");
        assert_eq!(made.iter().filter(|other| *other == path).count(), 1, "{id}");
    }
}

#[tokio::test]
async fn a_link_in_the_place_of_a_folder_is_refused_and_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "work/{thread}", None);
    fs::create_dir_all(base.path().join("work")).unwrap();
    fs::create_dir(base.path().join("precious")).unwrap();
    symlink(base.path().join("precious"), folders.path(&thread("t"))).unwrap();
    let error = folders.prepare(&thread("t")).await.unwrap_err();
    assert!(error.to_string().contains("cannot be made"), "{error}");
    assert_eq!(folders.remove(&thread("t")).await.unwrap(), Removal::Gone);
    assert!(base.path().join("precious").exists());
}

#[tokio::test]
async fn a_folder_of_all_threads_is_never_removed() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "shared", None);
    let made = folders.prepare(&thread("t")).await.unwrap();
    assert!(matches!(folders.remove(&thread("t")).await.unwrap(), Removal::Kept(_)));
    assert!(made.exists());
}

#[tokio::test]
async fn a_worktree_is_made_for_each_thread_and_goes_when_nothing_would_be_lost() {
    let base = tempfile::tempdir().unwrap();
    let main = base.path().join("repo");
    repository(&main);
    let folders = folders(base.path(), "work/{thread}", Some(&main));
    let tree = folders.prepare(&thread(THREAD)).await.unwrap();
    assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "one");
    let branch = format!("trilogue/org-coder/{THREAD}");
    assert_eq!(git(&tree, &["branch", "--show-current"]).trim(), branch);
    assert_eq!(folders.prepare(&thread(THREAD)).await.unwrap(), tree);
    // Another thread has its own, and does not see this one's changes.
    fs::write(tree.join("file"), "two").unwrap();
    let other = folders.prepare(&thread("other")).await.unwrap();
    assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "one");

    let Removal::Kept(why) = folders.remove(&thread(THREAD)).await.unwrap() else { panic!() };
    assert!(why.contains("modified or untracked"), "{why}");
    assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "two");
    git(&tree, &["commit", "--quiet", "-am", "two"]);
    // What was committed stays on its branch, and a thread of that name goes on with it.
    assert_eq!(folders.remove(&thread(THREAD)).await.unwrap(), Removal::Gone);
    assert!(!tree.exists());
    assert!(git(&main, &["branch", "--list", &branch]).contains(&branch));
    folders.prepare(&thread(THREAD)).await.unwrap();
    assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "two");

    assert_eq!(folders.remove(&thread("other")).await.unwrap(), Removal::Gone);
    assert_eq!(git(&main, &["branch", "--list", "trilogue/org-coder/other"]), "");
    assert_eq!(git(&main, &["worktree", "list"]).lines().count(), 2);
}

#[tokio::test]
async fn a_worktree_that_was_removed_by_hand_is_made_again() {
    let base = tempfile::tempdir().unwrap();
    let main = base.path().join("repo");
    repository(&main);
    let folders = folders(base.path(), "work/{thread}", Some(&main));
    let tree = folders.prepare(&thread("t")).await.unwrap();
    fs::remove_dir_all(&tree).unwrap();
    assert_eq!(folders.prepare(&thread("t")).await.unwrap(), tree);
    assert!(tree.join("file").exists());
    fs::remove_dir_all(&tree).unwrap();
    assert_eq!(folders.remove(&thread("t")).await.unwrap(), Removal::Gone);
}

#[tokio::test]
async fn what_git_refuses_is_told() {
    let base = tempfile::tempdir().unwrap();
    let none = base.path().join("none");
    let error = folders(base.path(), "w/{thread}", Some(&none)).prepare(&thread("t")).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("none") && error.hint_text().is_some(), "{error}");
    let main = base.path().join("repo");
    repository(&main);
    let folders = folders(base.path(), "w/{thread}", Some(&main));
    fs::create_dir_all(folders.path(&thread("t"))).unwrap();
    fs::write(folders.path(&thread("t")).join("mine"), "x").unwrap();
    let error = folders.prepare(&thread("t")).await.unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert!(error.hint_text().unwrap().contains("`worktree`"));
}

/// What an agent leaves in a repository is not run by the server.
#[tokio::test]
async fn hooks_are_not_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let base = tempfile::tempdir().unwrap();
    let main = base.path().join("repo");
    repository(&main);
    let hook = main.join(".git/hooks/post-checkout");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let trace = base.path().join("ran");
    fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", trace.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    folders(base.path(), "w/{thread}", Some(&main)).prepare(&thread("t")).await.unwrap();
    assert!(!trace.exists());
    // It would have been run by git itself.
    git(&main, &["worktree", "add", "--quiet", "../own"]);
    assert!(trace.exists());
}

#[test]
fn templates_are_checked() {
    for bad in ["", "work/{id}", "work/{thread", "a\0b"] {
        assert!(CwdTemplate::parse(bad).unwrap_err().hint_text().is_some(), "{bad:?}");
    }
    let plain = CwdTemplate::parse("work").unwrap();
    assert!(!plain.is_per_thread());
    let agent = AgentName::parse("a").unwrap();
    let error = Folders::new(Path::new("/"), plain, Some(Path::new("repo")), &agent).unwrap_err();
    assert!(error.hint_text().unwrap().contains("{thread}"));
}
