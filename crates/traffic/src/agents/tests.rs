use tokio::time::advance;

use super::*;

fn facts(node: &str, incarnation: u64) -> JoinFacts {
    JoinFacts { node: node.to_owned(), incarnation, ..JoinFacts::default() }
}

fn agents() -> Agents {
    Agents::new(Limits::default())
}

#[tokio::test(start_paused = true)]
async fn a_node_has_the_agent_that_began_last() {
    let agents = agents();
    let first = agents.join(facts("a", 5)).unwrap();
    assert!(agents.find(&first.id).is_ok());
    let again = agents.join(facts("a", 5)).unwrap();
    assert_eq!(agents.find(&first.id).unwrap_err(), UnknownAgent);
    assert_eq!(agents.join(facts("a", 4)).unwrap_err(), NotJoined::Outdated { known: 5 });
    assert!(agents.find(&again.id).is_ok());
    agents.join(facts("a", 6)).unwrap();
    assert_eq!(agents.join(facts("a", 5)).unwrap_err(), NotJoined::Outdated { known: 6 });
    assert_eq!(agents.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_left_comes_back_as_another_only() {
    let agents = agents();
    let agent = agents.join(facts("a", 5)).unwrap();
    let mut stream = agents.open_stream(&agent.id).unwrap();
    agents.leave(&agent.id).unwrap();
    stream.ended().await;
    assert!(!agents.alive("a"));
    assert_eq!(agents.list()[0].state, AgentState::Left);
    assert_eq!(agents.open_stream(&agent.id).unwrap_err(), UnknownAgent);
    assert_eq!(agents.join(facts("a", 5)).unwrap_err(), NotJoined::Outdated { known: 5 });
    agents.join(facts("a", 6)).unwrap();
    assert!(agents.alive("a"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_another_takes_its_place() {
    let agents = agents();
    let agent = agents.join(facts("a", 1)).unwrap();
    let mut first = agents.open_stream(&agent.id).unwrap();
    let mut second = agents.open_stream(&agent.id).unwrap();
    first.ended().await;
    let agent = agents.join(facts("a", 1)).unwrap();
    second.ended().await;
    let mut third = agents.open_stream(&agent.id).unwrap();
    agents.cut_off("a");
    third.ended().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_not_heard_is_not_alive_and_then_forgotten() {
    let agents = agents();
    let agent = agents.join(facts("a", 1)).unwrap();
    agents.join(facts("b", 1)).unwrap();
    let stream = agents.open_stream(&agent.id).unwrap();
    let state = |agents: &Agents| agents.list().iter().map(|it| it.state).collect::<Vec<_>>();
    assert_eq!(state(&agents), [AgentState::Alive, AgentState::Away]);
    advance(SILENT).await;
    assert_eq!(state(&agents), [AgentState::Silent, AgentState::Silent]);
    stream.heard(Dropped::default()).unwrap();
    assert!(agents.alive("a") && !agents.alive("b"));
    let living = agents.living();
    assert!(living("a") && !living("b") && !living("c"));
    assert!(agents.tick(0.0).is_empty());
    advance(AWAY - Duration::from_secs(1)).await;
    assert_eq!(agents.tick(0.0), ["b".into()]);
    assert_eq!(agents.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn numbers_of_an_agent_survive_its_joining_again() {
    let agents = agents();
    let agent = agents.join(facts("a", 1)).unwrap();
    let stream = agents.open_stream(&agent.id).unwrap();
    let dropped = Dropped { totals: 3, violations: 1, overruns: 2 };
    stream.heard(dropped).unwrap();
    stream.counted(40, 7, 5);
    stream.not_counted(ReportOutcome::Busy);
    agents.join(facts("a", 1)).unwrap();
    let view = &agents.list()[0];
    assert_eq!((view.batches, view.records, view.refused), (1, 40, 1));
    assert_eq!((view.through, view.durable, view.dropped), (7, 5, dropped));
    agents.join(facts("a", 2)).unwrap();
    assert_eq!(agents.list()[0].records, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_want_of_room_makes_the_interval_longer() {
    let agents = agents();
    let agent = agents.join(facts("a", 1)).unwrap();
    let stream = agents.open_stream(&agent.id).unwrap();
    agents.tick(0.0);
    assert_eq!(agents.interval(), SHORTEST);
    stream.not_counted(ReportOutcome::TooFast);
    agents.tick(0.0);
    assert_eq!(agents.interval(), SHORTEST);
    stream.not_counted(ReportOutcome::Busy);
    agents.tick(0.0);
    assert!(agents.interval() > SHORTEST);
}

#[tokio::test(start_paused = true)]
async fn agents_are_bounded_and_have_names() {
    let agents = Agents::new(Limits { agents: 2, ..Limits::default() });
    agents.join(facts("a", 1)).unwrap();
    agents.join(facts("b", 1)).unwrap();
    assert_eq!(agents.join(facts("c", 1)).unwrap_err(), NotJoined::Full);
    agents.join(facts("a", 2)).unwrap();
    for wrong in ["", "A", "a/b", "-a", "a-", "a..b", "a b", &"a".repeat(254)] {
        assert_eq!(agents.join(facts(wrong, 1)).unwrap_err(), NotJoined::BadName, "{wrong}");
    }
}
