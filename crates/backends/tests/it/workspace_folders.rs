//! The folders in which agents work, and their worktrees.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use trilogue_backends::workspace::{CwdTemplate, Folders, Removal};
use trilogue_domain::{AgentName, TenantId, ThreadId, ThreadKey};

const THREAD: &str = "0191c0de-0000-7000-8000-000000000001";
const KEY: ThreadKey = ThreadKey(1);

fn folders(base: &Path, template: &str, repository: Option<&Path>) -> Folders {
    let agent = AgentName::parse("org.coder").unwrap();
    let template = CwdTemplate::parse(template).unwrap();
    Folders::new(base, template, repository, &agent).unwrap()
}

fn tenant() -> TenantId {
    TenantId::parse("default").unwrap()
}

fn name(folders: &Folders, id: &str) -> String {
    let path = folders.path(&tenant(), &thread(id), KEY);
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn thread(id: &str) -> ThreadId {
    ThreadId::parse(id).unwrap()
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(identity).args(arguments);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

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
    let made = folders.prepare(&tenant(), &thread(THREAD), KEY).await.unwrap();
    let own = made.parent().unwrap().to_owned();
    assert_eq!(own.parent(), Some(&*base.path().join("work")));
    assert!(own.file_name().unwrap().to_str().unwrap().starts_with(THREAD), "{own:?}");
    for folder in [&made, &own, &base.path().join("work")] {
        assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700, "{folder:?}");
    }
    fs::write(made.join("file"), "x").unwrap();
    assert_eq!(folders.prepare(&tenant(), &thread(THREAD), KEY).await.unwrap(), made);
    assert!(made.join("file").exists());
    let other = folders.prepare(&tenant(), &thread("other"), KEY).await.unwrap();
    assert_eq!(folders.remove(&tenant(), &thread(THREAD), KEY).await.unwrap(), Removal::Gone);
    assert!(!own.exists() && other.exists());
    assert_eq!(folders.remove(&tenant(), &thread(THREAD), KEY).await.unwrap(), Removal::Gone);
}

#[tokio::test]
async fn no_thread_is_called_so_that_its_folder_lies_elsewhere() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "work/{thread}", None);
    let long = "x".repeat(200);
    let ids = ["..", ".", "a/b", "../../x", "/etc", "A", "a", "-rf", "ü", &long, "CON"];
    let made: Vec<_> = ids.iter().map(|id| folders.path(&tenant(), &thread(id), KEY)).collect();
    for (id, path) in ids.iter().zip(&made) {
        assert_eq!(path.parent(), Some(&*base.path().join("work")), "{id}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
        );
        assert!(!name.starts_with('-') && name.len() <= 64 + 17, "{name}");
        assert_eq!(made.iter().filter(|other| *other == path).count(), 1, "{id}");
    }
}

#[tokio::test]
async fn threads_of_two_tenants_with_the_same_id_have_folders_of_their_own() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "work/{thread}", None);
    let stranger = TenantId::parse("stranger").unwrap();
    for id in [THREAD, "t1", "A"] {
        let (ours, theirs) = (
            folders.prepare(&tenant(), &thread(id), KEY).await.unwrap(),
            folders.prepare(&stranger, &thread(id), KEY).await.unwrap(),
        );
        assert_ne!(ours, theirs);
        assert_eq!(folders.remove(&stranger, &thread(id), KEY).await.unwrap(), Removal::Gone);
        assert!(ours.exists() && !theirs.exists(), "{id}");
    }
}

#[tokio::test]
async fn a_thread_that_was_made_anew_has_a_folder_of_its_own() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "work/{thread}", None);
    for id in [THREAD, "t1", "A"] {
        let new = ThreadKey(2);
        let before = folders.prepare(&tenant(), &thread(id), KEY).await.unwrap();
        let after = folders.prepare(&tenant(), &thread(id), new).await.unwrap();
        assert_ne!(before, after);
        assert_eq!(folders.remove(&tenant(), &thread(id), KEY).await.unwrap(), Removal::Gone);
        assert!(after.exists() && !before.exists(), "{id}");
    }
}

#[tokio::test]
async fn what_stood_there_before_is_neither_worked_in_nor_removed() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "projects/{thread}", None);
    let precious = base.path().join("projects").join("website");
    fs::create_dir_all(&precious).unwrap();
    fs::write(precious.join("index.html"), "mine").unwrap();
    let made = folders.prepare(&tenant(), &thread("website"), KEY).await.unwrap();
    assert_ne!(made, precious);
    assert_eq!(fs::read_dir(&made).unwrap().count(), 0);
    assert_eq!(folders.remove(&tenant(), &thread("website"), KEY).await.unwrap(), Removal::Gone);
    assert!(!made.exists());
    assert_eq!(fs::read_to_string(precious.join("index.html")).unwrap(), "mine");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_folder_is_refused_and_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "work/{thread}", None);
    fs::create_dir_all(base.path().join("work")).unwrap();
    fs::create_dir(base.path().join("precious")).unwrap();
    symlink(base.path().join("precious"), folders.path(&tenant(), &thread("t"), KEY)).unwrap();
    let error = folders.prepare(&tenant(), &thread("t"), KEY).await.unwrap_err();
    assert!(error.to_string().contains("cannot be created"), "{error}");
    assert_eq!(folders.remove(&tenant(), &thread("t"), KEY).await.unwrap(), Removal::Gone);
    assert!(base.path().join("precious").exists());
}

#[tokio::test]
async fn a_folder_of_all_threads_is_never_removed() {
    let base = tempfile::tempdir().unwrap();
    let folders = folders(base.path(), "shared", None);
    let made = folders.prepare(&tenant(), &thread("t"), KEY).await.unwrap();
    assert!(matches!(
        folders.remove(&tenant(), &thread("t"), KEY).await.unwrap(),
        Removal::Kept(_)
    ));
    assert!(made.exists());
}

#[tokio::test]
async fn a_worktree_is_made_for_each_thread_and_goes_when_nothing_would_be_lost() {
    let base = tempfile::tempdir().unwrap();
    let main = base.path().join("repo");
    repository(&main);
    let folders = folders(base.path(), "work/{thread}", Some(&main));
    let tree = folders.prepare(&tenant(), &thread(THREAD), KEY).await.unwrap();
    assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "one");
    let branch = format!("trilogue/org-coder/{}", name(&folders, THREAD));
    assert_eq!(git(&tree, &["branch", "--show-current"]).trim(), branch);
    assert_eq!(folders.prepare(&tenant(), &thread(THREAD), KEY).await.unwrap(), tree);
    // Another thread has a separate folder, and does not see the changes of the first.
    fs::write(tree.join("file"), "two").unwrap();
    let other = folders.prepare(&tenant(), &thread("other"), KEY).await.unwrap();
    assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "one");

    let Removal::Kept(why) = folders.remove(&tenant(), &thread(THREAD), KEY).await.unwrap() else {
        panic!()
    };
    assert!(why.contains("modified or untracked"), "{why}");
    assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "two");
    git(&tree, &["commit", "--quiet", "-am", "two"]);
    // Commits stay on their branch, and the thread continues with it.
    assert_eq!(folders.remove(&tenant(), &thread(THREAD), KEY).await.unwrap(), Removal::Gone);
    assert!(!tree.exists());
    assert!(git(&main, &["branch", "--list", &branch]).contains(&branch));
    folders.prepare(&tenant(), &thread(THREAD), KEY).await.unwrap();
    assert_eq!(fs::read_to_string(tree.join("file")).unwrap(), "two");

    assert_eq!(folders.remove(&tenant(), &thread("other"), KEY).await.unwrap(), Removal::Gone);
    let other = format!("trilogue/org-coder/{}", name(&folders, "other"));
    assert_eq!(git(&main, &["branch", "--list", &other]), "");
    assert_eq!(git(&main, &["worktree", "list"]).lines().count(), 2);
}

#[tokio::test]
async fn a_worktree_that_was_removed_by_hand_is_made_again() {
    let base = tempfile::tempdir().unwrap();
    let main = base.path().join("repo");
    repository(&main);
    let folders = folders(base.path(), "work/{thread}", Some(&main));
    let tree = folders.prepare(&tenant(), &thread("t"), KEY).await.unwrap();
    fs::remove_dir_all(&tree).unwrap();
    assert_eq!(folders.prepare(&tenant(), &thread("t"), KEY).await.unwrap(), tree);
    assert!(tree.join("file").exists());
    fs::remove_dir_all(&tree).unwrap();
    assert_eq!(folders.remove(&tenant(), &thread("t"), KEY).await.unwrap(), Removal::Gone);
}

#[tokio::test]
async fn what_git_refuses_is_told() {
    let base = tempfile::tempdir().unwrap();
    let none = base.path().join("none");
    let error =
        folders(base.path(), "w/{thread}", Some(&none)).prepare(&tenant(), &thread("t"), KEY).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("none") && error.hint_text().is_some(), "{error}");
    let main = base.path().join("repo");
    repository(&main);
    let folders = folders(base.path(), "w/{thread}", Some(&main));
    fs::create_dir_all(folders.path(&tenant(), &thread("t"), KEY)).unwrap();
    fs::write(folders.path(&tenant(), &thread("t"), KEY).join("mine"), "x").unwrap();
    let error = folders.prepare(&tenant(), &thread("t"), KEY).await.unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert!(error.hint_text().unwrap().contains("`worktree`"));
}

/// The server does not run hooks that an agent leaves in a repository.
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
    folders(base.path(), "w/{thread}", Some(&main))
        .prepare(&tenant(), &thread("t"), KEY)
        .await
        .unwrap();
    assert!(!trace.exists());
    // Git itself would have run the hook.
    git(&main, &["worktree", "add", "--quiet", "../own"]);
    assert!(trace.exists());
}

/// The server runs no program that the repository's settings name under any name, and no such program gets the server's secrets.
#[tokio::test]
async fn programs_in_the_settings_of_a_repository_are_not_run() {
    let base = tempfile::tempdir().unwrap();
    let main = base.path().join("repo");
    repository(&main);
    let trace = base.path().join("ran");
    let program = format!("sh -c 'env >> {}; cat'", trace.display());
    let names = ["plain", "a=b.c", "with space"];
    for name in names {
        for member in ["clean", "smudge"] {
            git(&main, &["config", &format!("filter.{name}.{member}"), &program]);
        }
        git(&main, &["config", &format!("filter.{name}.required"), "true"]);
    }
    for name in ["core.fsmonitor", "core.pager", "diff.external", "core.sshCommand"] {
        git(&main, &["config", name, &program]);
    }
    git(&main, &["config", "alias.worktree", &format!("!{program}")]);
    fs::write(main.join(".gitattributes"), "file filter=plain\nother filter=a=b.c\n").unwrap();
    fs::write(main.join("other"), "two").unwrap();
    git(&main, &["add", "."]);
    git(&main, &["commit", "--quiet", "-m", "two"]);
    fs::remove_file(&trace).unwrap();

    let folders = folders(base.path(), "w/{thread}", Some(&main));
    let tree = folders.prepare(&tenant(), &thread("t"), KEY).await.unwrap();
    assert_eq!(fs::read_to_string(tree.join("other")).unwrap(), "two");
    // Git reads the files again.
    fs::write(tree.join("file"), "changed").unwrap();
    let kept = folders.remove(&tenant(), &thread("t"), KEY).await.unwrap();
    assert!(matches!(kept, Removal::Kept(_)));
    assert!(!trace.exists(), "{}", fs::read_to_string(&trace).unwrap());
    // Git itself would have run the program.
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
