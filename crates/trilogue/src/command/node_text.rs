//! What commands say of the servers that share a store.

use trilogue_wire::native::{AgentDifference, Node};

/// Describes the state of a server in a few words.
pub(super) fn state(node: &Node) -> String {
    match (node.this, node.alive) {
        _ if node.alive && node.draining => "draining".to_owned(),
        (true, _) => "this one".to_owned(),
        (false, true) => "alive".to_owned(),
        (false, false) => format!("silent for {} s", node.silent_ms / 1_000),
    }
}

/// Describes the disagreement of the servers, after the agent's name.
pub(super) fn difference(found: &AgentDifference) -> String {
    let groups: Vec<_> = found.variants.iter().map(|names| names.join(", ")).collect();
    let mut text = match groups.as_slice() {
        [one] => format!("on {one}"),
        several => format!("described differently on {}", several.join(" and on ")),
    };
    if !found.missing_on.is_empty() {
        text.push_str(&format!(", missing on {}", found.missing_on.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_who_has_the_agent_and_who_has_not() {
        let told = |variants: &[&[&str]], missing_on: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            difference(&AgentDifference {
                agent: "x".to_owned(),
                variants: variants.iter().map(|names| owned(names)).collect(),
                missing_on: owned(missing_on),
            })
        };
        assert_eq!(told(&[&["a", "b"]], &["c"]), "on a, b, missing on c");
        assert_eq!(told(&[&["a"], &["b", "c"]], &[]), "described differently on a and on b, c");
    }
}
