use std::os::unix::fs::symlink;
use std::time::Duration;

use tempfile::TempDir;
use trilogue_sandbox::{Layers, Network, ResourceLimits};

use super::*;

/// A home folder with a workspace, folders outside, and the state of a server.
struct Machine {
    _dir: TempDir,
    root: PathBuf,
}

impl Machine {
    fn new() -> Self {
        // Not below `/tmp`, which counts as a folder of all users.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["home/.config", "work", "srv/data/deep", "srv/state", "other"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["home/key", "srv/data/a", "srv/data/b", "srv/data/c", "srv/state/token"] {
            fs::write(root.join(file), "").unwrap();
        }
        symlink(root.join("srv/data"), root.join("home/data")).unwrap();
        symlink(root.join("srv/data"), root.join("work/data")).unwrap();
        Self { _dir: dir, root }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The rules for these uses, with paths below the root.
    fn rules(&self, uses: &[(PathUseKind, &str)]) -> (Vec<String>, Vec<String>, Vec<String>) {
        let policy = SandboxPolicy {
            layers: Layers::ALL,
            read: vec!["/usr".into(), "/proc".into()],
            write: vec![self.at("work")],
            links: Vec::new(),
            hidden: vec![self.at("srv/state")],
            home: Some(self.at("home")),
            temporary: self.at("tmp"),
            network: Network::Open,
            limits: ResourceLimits::default(),
            group: None,
            hold: None,
            lease: None,
            broker: None,
        };
        let mut all = TracedUses::default();
        for (kind, path) in uses {
            let path = PathUse { path: self.at(path), kind: *kind, is_refused: false };
            all.add(TracedUse::Path(path));
        }
        let around = Surroundings {
            // A file of this test is older.
            started: SystemTime::now() + Duration::from_secs(3600),
            workspaces: vec![(self.at("other"), "it is of another agent".to_owned())],
        };
        let mut rules = SandboxRules::default();
        rules.add(&all, &policy, &around);
        rules.group(policy.home.as_deref());
        let below = |path: &PathBuf| {
            let below = path.strip_prefix(&self.root).unwrap_or(path);
            below.display().to_string()
        };
        (
            rules.read_paths.iter().map(below).collect(),
            rules.write_paths.iter().map(below).collect(),
            rules.refused.keys().map(below).collect(),
        )
    }
}

#[test]
fn what_the_sandbox_allows_is_left_out() {
    let uses = [
        (PathUseKind::Read, "/usr/bin/env"),
        (PathUseKind::Create, "work/new"),
        (PathUseKind::Replace, "work/old"),
        (PathUseKind::Change, "/dev/null"),
        (PathUseKind::Read, "srv/gone"),
    ];
    assert_eq!(Machine::new().rules(&uses), Default::default());
}

#[test]
fn files_are_named_and_many_of_them_by_their_folder() {
    let machine = Machine::new();
    let two = [(PathUseKind::Read, "srv/data/a"), (PathUseKind::Read, "srv/data/b")];
    assert_eq!(machine.rules(&two).0, ["srv/data/a", "srv/data/b"]);
    let three = [two[0], two[1], (PathUseKind::Read, "srv/data/c")];
    assert_eq!(machine.rules(&three).0, ["srv/data"]);
    // A file that is changed as it is needs no more; a new one, a removed one or a renamed one needs its folder.
    let (_, write, _) = machine.rules(&[(PathUseKind::Open, "srv/data/a")]);
    assert_eq!(write, ["srv/data/a"]);
    for kind in [PathUseKind::Create, PathUseKind::Replace] {
        let (read, write, _) = machine.rules(&[(kind, "srv/data/a"), two[1]]);
        assert_eq!((read.is_empty(), write), (true, vec!["srv/data".to_owned()]));
    }
}

#[test]
fn a_link_is_named_only_if_the_agent_cannot_change_it() {
    let machine = Machine::new();
    assert_eq!(machine.rules(&[(PathUseKind::Read, "home/data/a")]).0, ["home/data/a"]);
    assert_eq!(machine.rules(&[(PathUseKind::Read, "work/data/a")]).0, ["srv/data/a"]);
}

#[test]
fn what_no_rule_can_give_is_refused() {
    let machine = Machine::new();
    let uses = [
        (PathUseKind::Read, "srv/state/token"),
        (PathUseKind::Create, "other/file"),
        (PathUseKind::Read, "home"),
        (PathUseKind::Replace, "home/key"),
        (PathUseKind::Change, "/proc/self/comm"),
    ];
    let (read, write, refused) = machine.rules(&uses);
    assert_eq!((read, write), (Vec::new(), Vec::new()));
    assert_eq!(refused.len(), uses.len(), "{refused:?}");
    // A new file in a folder with too much is granted by itself.
    assert_eq!(machine.rules(&[(PathUseKind::Create, "home/key")]).1, ["home/key"]);
}
