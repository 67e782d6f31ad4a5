//! Where the binary mounts a protocol: by file, by option, and its output about that.

use crate::harness::Home;

fn check(home: &Home, config: &str, options: &[&str]) -> (i32, String, String) {
    home.write("t.toml", config);
    let arguments = [&["serve", "--config", "t.toml", "--check"], options].concat();
    let ended = home.run(&arguments);
    (ended.code, ended.out, ended.err)
}

#[test]
fn check_explains_where_protocols_are_served() {
    let home = Home::new();
    let (code, _, err) = check(&home, "", &[]);
    assert_eq!(code, 0);
    assert!(err.contains("communication is served at /communication (compatible)\n"), "{err}");
    let strict =
        "[[mounts]]\nprotocol = \"communication\"\nstrict = true\nrequire_interrupt_id = true\n";
    let (code, _, err) = check(&home, strict, &["--mount", "communication=/"]);
    assert_eq!(code, 0);
    let said =
        "communication is served at / (strict, answers to permissions need the interrupt's id)\n";
    assert!(err.contains(said), "{err}");
    let (code, out, err) = check(&home, "", &["--strict"]);
    assert_eq!(code, 0);
    assert!(err.contains("communication is served at /communication (strict)\n"), "{err}");
    let setting = out.lines().find(|line| line.starts_with("client.strict ")).unwrap();
    assert_eq!(
        setting.split_whitespace().collect::<Vec<_>>(),
        ["client.strict", "true", "--strict"]
    );
    let as_documented = "[[mounts]]\nprotocol = \"connect\"\nas_documented = true\n";
    for (config, options) in [(as_documented, &[][..]), ("", &["--as-documented"])] {
        let (code, _, err) = check(&home, config, options);
        assert_eq!(code, 0);
        assert!(err.contains("connect is served at /connect (as documented)\n"), "{err}");
    }
    let (code, out, err) = check(&home, "", &["--allow-egress", "10.0.0.0/8,::1"]);
    assert_eq!(code, 0);
    assert!(out.contains("[\"10.0.0.0/8\",\"::1/128\"]"), "{out}");
    assert!(err.contains("override in force: egress.allow"), "{err}");
}

#[test]
fn what_cannot_be_served_together_is_refused_by_name() {
    let home = Home::new();
    let twice = ["--mount", "communication=/a", "--mount", "communication=/a"];
    let (code, _, err) = check(&home, "", &twice);
    assert_eq!(code, 7);
    assert!(err.contains("communication=/a and communication=/a have one prefix"), "{err}");
    let (code, _, err) = check(&home, "", &["--mount", "communication=/api/v1/threads"]);
    assert_eq!(code, 2);
    assert!(err.contains("where the server's own routes are"), "{err}");
    let (code, _, err) = check(&home, "", &["--mount", "comunication=/"]);
    assert_eq!(code, 2);
    assert!(err.contains("unknown protocol 'comunication'"), "{err}");
    let agent =
        |name: &str| format!("[agents.\"{name}\"]\nkind = \"builtin\"\nbuiltin = \"echo\"\n");
    let alike = agent("org.x") + &agent("org-x");
    let (code, _, err) = check(&home, &alike, &[]);
    assert_eq!(code, 7);
    assert!(err.contains("'org-x' and 'org.x' are both 'org-x'"), "{err}");
    let off = "[[mounts]]\nprotocol = \"communication\"\nenabled = false\n";
    assert_eq!(check(&home, &format!("{off}{alike}"), &[]).0, 0);
}
