//! Where nodes that share a store differ in their agents.

use std::collections::{BTreeMap, BTreeSet};

use crate::port::{AgentDifference, NodeAgent};

/// What a node has published about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeAgents<'a> {
    pub(crate) node: &'a str,
    pub(crate) version: &'a str,
    pub(crate) agents: &'a [NodeAgent],
}

/// The agents, by name, that only some of these nodes have or that nodes describe differently. Agents that lists leave out are not compared. Descriptions by two versions of the program are not compared either, because their forms may differ.
pub(crate) fn differences(nodes: &[NodeAgents<'_>]) -> Vec<AgentDifference> {
    let mut found: BTreeMap<&str, Vec<(&NodeAgents<'_>, &str)>> = BTreeMap::new();
    for node in nodes {
        for agent in node.agents {
            if let Some(digest) = &agent.digest {
                found.entry(&agent.name).or_default().push((node, digest));
            }
        }
    }
    let difference = |(agent, on): (&str, Vec<(&NodeAgents<'_>, &str)>)| {
        let has = |node: &&NodeAgents<'_>| on.iter().any(|(other, _)| other.node == node.node);
        let missing_on = nodes.iter().filter(|node| !has(node));
        let missing_on: Vec<_> = missing_on.map(|node| node.node.to_owned()).collect();
        let variants = variants(&on);
        (!missing_on.is_empty() || variants.len() > 1).then(|| AgentDifference {
            agent: agent.to_owned(),
            variants,
            missing_on,
        })
    };
    found.into_iter().filter_map(difference).collect()
}

/// The names of the nodes that have an agent, grouped by equal description.
fn variants(on: &[(&NodeAgents<'_>, &str)]) -> Vec<Vec<String>> {
    let of_version = |version: &str| {
        let same = on.iter().filter(|(node, _)| node.version == version);
        same.map(|(_, digest)| *digest).collect::<BTreeSet<_>>().len()
    };
    let is_same = on.iter().all(|(node, _)| of_version(node.version) == 1);
    let mut groups: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (node, digest) in on {
        let group = if is_same { ("", "") } else { (node.version, *digest) };
        groups.entry(group).or_default().push(node.node.to_owned());
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_unstable();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent((name, digest): (&str, &str)) -> NodeAgent {
        let digest = (!digest.is_empty()).then(|| digest.to_owned());
        NodeAgent { name: name.to_owned(), digest, also: Vec::new() }
    }

    #[test]
    fn agents_are_compared_between_nodes_of_one_version() {
        let of = |agents: &[(&str, &str)]| agents.iter().copied().map(agent).collect::<Vec<_>>();
        for (a, b, c, expected) in [
            (of(&[("x", "1")]), of(&[("x", "1")]), of(&[("x", "2")]), vec![]),
            (of(&[("x", "1")]), of(&[("x", "1")]), of(&[]), vec!["x [a b] - c"]),
            (of(&[("x", "1")]), of(&[("x", "2")]), of(&[("x", "2")]), vec!["x [a] [b] [c] -"]),
            (of(&[("x", "1"), ("y", "")]), of(&[]), of(&[("x", "1")]), vec!["x [a c] - b"]),
        ] {
            let nodes = [("a", "1", &a), ("b", "1", &b), ("c", "2", &c)];
            let nodes = nodes.map(|(node, version, agents)| NodeAgents { node, version, agents });
            let found: Vec<_> = differences(&nodes)
                .into_iter()
                .map(|it| {
                    let variants: Vec<_> =
                        it.variants.iter().map(|group| format!("[{}]", group.join(" "))).collect();
                    let missing = it.missing_on.join(" ");
                    format!("{} {} - {missing}", it.agent, variants.join(" ")).trim_end().to_owned()
                })
                .collect();
            assert_eq!(found, expected);
        }
    }
}
