use std::sync::Arc;

use objects::kinds::Protocol;
use stallproof::Map;

use super::*;
use traffic::ingest::AgentGroup;

fn group(networks: &[&str], mode: Option<GroupMode>) -> Arc<AgentGroup> {
    let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
    Arc::new(AgentGroup { networks, except: Vec::new(), mode })
}

fn rule(name: &str, learned: bool, ports: &str, allows: bool) -> Arc<AgentRule> {
    Arc::new(AgentRule {
        name: name.into(),
        learned,
        priority: 0,
        from: "web".into(),
        to: "db".into(),
        ports: vec![ports.parse().unwrap()],
        applications: Vec::new(),
        allows,
    })
}

fn key(client: &str, server: &str, port: u16) -> ConversationKey {
    let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
    ConversationKey { client, server, port, protocol: Protocol::TCP }
}

#[test]
fn the_first_rule_decides_and_without_one_the_laxer_mode_does() {
    let mut groups = Map::new();
    groups.insert("web".into(), group(&["10.0.0.1/32"], Some(GroupMode::Monitor)));
    groups.insert("db".into(), group(&["10.0.1.0/24"], Some(GroupMode::Protect)));
    groups.insert("new".into(), group(&["10.0.0.2/32"], Some(GroupMode::Discover)));
    let mut except = AgentGroup::clone(&group(&["10.0.2.0/24"], Some(GroupMode::Monitor)));
    except.except.push("10.0.2.9/32".parse().unwrap());
    groups.insert("rest".into(), Arc::new(except));
    let mut rules = Map::new();
    for rule in [
        rule("a-allowed", true, "tcp/5432", true),
        rule("b-denied", false, "tcp/5432", false),
        rule("c-allowed", true, "tcp/80", true),
    ] {
        rules.insert(rule.name.clone(), rule);
    }
    let rules = Rules::new(&AgentPolicy { version: 1, rules, groups, mode: GroupMode::Discover });

    assert!(rules.violates(&key("10.0.0.1", "10.0.1.7", 5432)), "written before learned");
    assert!(!rules.violates(&key("10.0.0.1", "10.0.1.7", 80)));
    assert!(rules.violates(&key("10.0.0.1", "10.0.1.7", 81)), "nobody allows it");
    assert!(rules.violates(&key("8.8.8.8", "10.0.1.7", 80)), "one end alone has a mode");
    assert!(!rules.violates(&key("10.0.0.2", "10.0.1.7", 81)), "that one is still being learned");
    assert!(!rules.violates(&key("8.8.8.8", "10.0.2.9", 80)), "left out of its group");
    assert!(!rules.violates(&key("8.8.8.8", "9.9.9.9", 80)), "nobody's");
}
