use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use trilogue_domain::{Json, Survives};

use super::*;

fn rule(name: &str, verdict: Verdict) -> RuleText {
    RuleText { name: name.to_owned(), kinds: None, tool: None, path: None, verdict }
}

fn rules(texts: Vec<RuleText>) -> Rules {
    Rules::new(texts.into_iter().map(|text| Rule::new(text).unwrap()).collect()).unwrap()
}

/// One rule about a path, and its verdict about these paths.
fn of_paths(pattern: &str, verdict: Verdict, root: &Path, paths: &[&str]) -> Option<Verdict> {
    let rules = rules(vec![RuleText { path: Some(pattern.to_owned()), ..rule("it", verdict) }]);
    let subject = Subject { paths: paths.to_vec(), root: Some(root), ..Subject::default() };
    rules.decide(&subject).map(|(_, verdict)| verdict)
}

#[test]
fn a_pattern_of_many_stars_takes_bounded_time() {
    let root = tempfile::tempdir().unwrap();
    let begun = std::time::Instant::now();
    let folder = "a".repeat(200);
    let path = vec![folder.as_str(); 15].join("/");
    let stars = "*a".repeat(40);
    let decide = |pattern: &str| of_paths(pattern, Verdict::Allow, root.path(), &[path.as_str()]);
    assert_eq!(decide(&format!("**/{stars}*")), Some(Verdict::Allow));
    // A matcher that tries each way to divide the name would never be done.
    assert_eq!(decide(&format!("**/{stars}b")), None);
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

fn question(options: &[(&str, Effect, bool)]) -> Interrupt {
    let options = options.iter().map(|(id, effect, always)| PermissionOption {
        id: (*id).to_owned(),
        name: (*id).to_owned(),
        effect: *effect,
        always: *always,
    });
    Interrupt {
        payload: Json::empty_object(),
        options: options.collect(),
        ..Interrupt::new(InterruptKind::Permission)
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let kinds = |kinds: &[&str]| Some(kinds.iter().map(|it| (*it).to_owned()).collect());
    let rules = rules(vec![
        RuleText { kinds: kinds(&["read", "search"]), ..rule("reads", Verdict::Allow) },
        RuleText { tool: Some("fs_*".to_owned()), ..rule("files", Verdict::Ask) },
        RuleText {
            kinds: kinds(&["execute"]),
            tool: Some("git".to_owned()),
            ..rule("git", Verdict::Allow)
        },
        RuleText { kinds: kinds(&["execute"]), ..rule("no shell", Verdict::Deny) },
    ]);
    for (kind, tool, expected) in [
        (Some("read"), None, Some(("reads", Verdict::Allow))),
        (Some("search"), Some("fs_find"), Some(("reads", Verdict::Allow))),
        (Some("edit"), Some("fs_write"), Some(("files", Verdict::Ask))),
        (None, Some("fs_read/all"), Some(("files", Verdict::Ask))),
        (Some("execute"), Some("git"), Some(("git", Verdict::Allow))),
        (Some("execute"), Some("gitx"), Some(("no shell", Verdict::Deny))),
        (Some("execute"), None, Some(("no shell", Verdict::Deny))),
        (Some("edit"), None, None),
        (None, None, None),
    ] {
        let subject = Subject { kind, tool, ..Subject::default() };
        assert_eq!(rules.decide(&subject), expected, "{kind:?} {tool:?}");
    }
    assert_eq!(Rules::default().decide(&Subject::default()), None);
}

#[test]
fn all_paths_have_to_be_allowed_and_one_is_enough_to_deny() {
    let root = Path::new("/none/ws");
    let allowed = |paths: &[&str]| of_paths("src/**", Verdict::Allow, root, paths).is_some();
    assert!(allowed(&["/none/ws/src/a.rs", "src/b/c.rs", "/none/ws/./src//d"]));
    for outside in [
        "/none/ws/README",
        "/none/ws/srcs/a",
        "/none/ws-evil/src/a",
        "/src/a",
        "/none/ws/src/../../ws/README",
        "src/../../../etc/passwd",
        "",
        "src/a\0",
    ] {
        assert!(!allowed(&[outside]), "{outside}");
        assert!(!allowed(&["src/a.rs", outside]), "{outside}");
    }
    // A call without a file has nothing that could be allowed.
    assert!(!allowed(&[]));
    for verdict in [Verdict::Deny, Verdict::Ask] {
        let stopped = |pattern, paths: &[&str]| of_paths(pattern, verdict, root, paths).is_some();
        assert!(stopped("**/.env", &["src/a", "/none/ws/deep/.env"]));
        assert!(stopped("/etc/**", &["src/a", "/etc/passwd"]));
        assert!(stopped("/etc/**", &["../../etc/passwd"]));
        assert!(!stopped("**/.env", &["src/a", "/elsewhere/.env"]));
        assert!(!stopped("**/.env", &[]));
    }
}

#[test]
fn a_star_stays_within_a_folder() {
    let root = Path::new("/none/ws");
    let fits =
        |pattern: &str, path: &str| of_paths(pattern, Verdict::Allow, root, &[path]).is_some();
    assert!(fits("src/*.rs", "src/a.rs") && !fits("src/*.rs", "src/deep/a.rs"));
    assert!(fits("src/**/*.rs", "src/deep/a.rs") && fits("src/**/*.rs", "src/a.rs"));
    assert!(fits("{docs,src}/*", "docs/a") && !fits("{docs,src}/*", "test/a"));
    assert!(fits("**", "any/thing") && !fits("**", "/any/thing"));
    assert!(fits("/**", "/any/thing") && !fits("src", "src/a"));
}

#[test]
fn a_link_fits_where_it_leads_too() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap().join("ws");
    fs::create_dir_all(root.join("src/deep")).unwrap();
    fs::create_dir(root.join("private")).unwrap();
    fs::write(root.join("private/key"), "").unwrap();
    symlink(root.join("private"), root.join("src/link")).unwrap();
    symlink("deep", root.join("src/fine")).unwrap();
    symlink("/none/where", root.join("src/dangling")).unwrap();
    let allowed = |path: &str| of_paths("src/**", Verdict::Allow, &root, &[path]).is_some();
    assert!(allowed("src/deep/new.rs") && allowed("src/fine/new.rs"));
    assert!(allowed("src/deep/../new.rs"), "it goes up and stays");
    for path in ["src/link/key", "src/link/new", "src/dangling", "src/dangling/x", "src/link/../x"]
    {
        assert!(!allowed(path), "{path}");
    }
    let denied = |path: &str| of_paths("private/**", Verdict::Deny, &root, &[path]).is_some();
    assert!(denied("src/link/key") && denied("private/none") && !denied("src/deep/x"));
    // The folder itself may be reached by a link.
    let alias = base.path().join("alias");
    symlink(&root, &alias).unwrap();
    let of_alias = |path: &Path| {
        of_paths("src/**", Verdict::Allow, &alias, &[path.to_str().unwrap()]).is_some()
    };
    assert!(of_alias(&alias.join("src/a")) && of_alias(&root.join("src/a")));
    assert!(!of_alias(&alias.join("src/link/key")));
}

#[test]
fn without_a_folder_a_relative_path_is_taken_at_its_word() {
    let rules =
        rules(vec![RuleText { path: Some("src/*".to_owned()), ..rule("it", Verdict::Allow) }]);
    let decided = |path| {
        let subject = Subject { paths: vec![path], ..Subject::default() };
        rules.decide(&subject).is_some()
    };
    assert!(decided("src/a") && decided("./src/a"));
    for path in ["src/../a", "a/../src/a", "/src/a", "src/../../src/a"] {
        assert!(!decided(path), "{path}");
    }
}

#[tokio::test]
async fn a_rule_chooses_what_holds_for_this_call_only() {
    use Effect::{Allow, Reject};
    let all = [
        ("always", Allow, true),
        ("never", Reject, true),
        ("once", Allow, false),
        ("no", Reject, false),
    ];
    // One id for two options: the agent could take a refusal for consent.
    let ambiguous = [("x", Allow, false), ("x", Reject, false), ("yes", Allow, false)];
    let cases: [(Verdict, &[_], Option<&str>); 10] = [
        (Verdict::Deny, &ambiguous, None),
        (Verdict::Allow, &ambiguous, Some("yes")),
        (Verdict::Allow, &ambiguous[..2], None),
        (Verdict::Allow, &all, Some("once")),
        (Verdict::Deny, &all, Some("no")),
        (Verdict::Ask, &all, None),
        // An option that allows for ever would also allow calls that no rule names.
        (Verdict::Allow, &all[..2], None),
        (Verdict::Deny, &all[..2], Some("never")),
        (Verdict::Allow, &all[1..2], None),
        (Verdict::Allow, &[], None),
    ];
    for (verdict, options, chosen) in cases {
        let rules = rules(vec![rule("it", verdict)]);
        let question = question(options);
        let applied = rules.answer(&Subject::default(), &question).await;
        assert_eq!(applied.as_ref().and_then(|it| it.option.as_deref()), chosen, "{verdict:?}");
        if let Some(applied) = applied {
            assert_eq!(applied.allowed, verdict == Verdict::Allow);
            question.check(&applied.answer()).unwrap();
            let Resolution::Answered { by, digest, .. } = applied.resolution(&question).unwrap()
            else {
                panic!("it was not answered")
            };
            assert_eq!((by.as_str(), digest), ("rule:it", question.payload.digest()));
        }
    }
    let mut form = question(&all);
    form.kind = InterruptKind::Form;
    let rules = rules(vec![rule("it", Verdict::Allow)]);
    assert_eq!(rules.answer(&Subject::default(), &form).await, None);
}

#[tokio::test]
async fn what_is_denied_is_not_asked_where_nothing_rejects() {
    let rules = rules(vec![rule("it", Verdict::Deny)]);
    let mut question = question(&[("ever", Effect::Allow, true), ("yes", Effect::Allow, false)]);
    let applied = rules.answer(&Subject::default(), &question).await.unwrap();
    assert_eq!((applied.allowed, applied.answer()), (false, Answer::Json(Json::null())));
    // A question that survives a restart accepts only its options.
    question.survives = Survives::Restart;
    assert_eq!(rules.answer(&Subject::default(), &question).await, None);
}

#[tokio::test]
async fn an_answer_looks_where_paths_lead() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    fs::create_dir(root.join("src")).unwrap();
    symlink("/etc", root.join("src/link")).unwrap();
    let of_path = |name: &str, pattern: &str, verdict| RuleText {
        path: Some(pattern.to_owned()),
        ..rule(name, verdict)
    };
    let rules = rules(vec![
        of_path("keys", "src/keys/**", Verdict::Deny),
        of_path("source", "src/**", Verdict::Allow),
    ]);
    let question = question(&[("yes", Effect::Allow, false), ("no", Effect::Reject, false)]);
    for (path, expected) in [
        ("src/a", Some(("source", "yes"))),
        ("src/keys/a", Some(("keys", "no"))),
        ("src/link/passwd", None),
        ("README", None),
    ] {
        let subject = Subject { paths: vec![path], root: Some(&root), ..Subject::default() };
        let applied = rules.answer(&subject, &question).await;
        let applied = applied.as_ref().map(|it| (it.rule.as_str(), it.option.as_deref().unwrap()));
        assert_eq!(applied, expected, "{path}");
    }
}

#[test]
fn what_is_no_rule_says_why() {
    let with = |change: fn(&mut RuleText)| {
        let mut text = rule("it", Verdict::Allow);
        change(&mut text);
        Rule::new(text).unwrap_err().to_string()
    };
    assert!(with(|it| it.name.clear()).contains("name"));
    assert!(with(|it| it.name = "a\nb".to_owned()).contains("control"));
    assert!(with(|it| it.kinds = Some(Vec::new())).contains("never match"));
    assert!(with(|it| it.tool = Some("[".to_owned())).contains("`tool` of the rule 'it'"));
    assert!(with(|it| it.path = Some("a/../b".to_owned())).contains("`..`"));
    assert!(with(|it| it.path = Some(String::new())).contains("`path`"));
    let twice = vec![Rule::new(rule("it", Verdict::Allow)).unwrap(); 2];
    assert!(Rules::new(twice).unwrap_err().to_string().contains("two rules"));
}

proptest! {
    /// Every allowed path is below the folder that the rule names.
    #[test]
    fn nothing_outside_is_ever_allowed(parts in prop::collection::vec("(\\.\\.|\\.|src|a|ws|none|)", 0..8), absolute: bool) {
        let mut path = parts.join("/");
        if absolute {
            path.insert_str(0, "/none/ws/");
        }
        let root = Path::new("/none/ws");
        if of_paths("src/**", Verdict::Allow, root, &[&path]).is_some() {
            let mut resolved = Vec::new();
            for part in root.join(&path).components() {
                match part {
                    std::path::Component::ParentDir => drop(resolved.pop()),
                    std::path::Component::Normal(name) => resolved.push(name.to_owned()),
                    _ => {}
                }
            }
            let resolved: std::path::PathBuf = resolved.iter().collect();
            prop_assert!(resolved.starts_with("none/ws/src"), "{path}");
        }
    }
}
