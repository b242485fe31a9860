#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use policy::cluster::{Key, Labels, Pod};
use policy::program::{Delta, Fingerprint, Program};
use policy::{Change, Compiler, Publisher};
use tokio::sync::watch;

use super::{Applied, Ended, Follower, Nodes, Position, SILENT};
use crate::status::NodeState;

const NOTHING: Position = Position { generation: 0, fingerprint: Fingerprint(0) };

fn pod(place: u8) -> Change {
    let name = format!("p{place}");
    let key = Key::new("shop", &name);
    let pod = Pod {
        key: key.clone(),
        node: "n1".into(),
        labels: Labels::new(),
        addresses: vec![[10, 0, 0, place].into()],
        host_network: false,
        finished: false,
        ports: Vec::new(),
        images: Vec::new(),
        owner: format!("Pod/{name}").into(),
        created: 0,
    };
    Change::Pod(key, Some(Arc::new(pod)))
}

/// A controller that hands one node its program.
struct Controller {
    publisher: Publisher,
    newest: watch::Sender<Option<Arc<Program>>>,
    nodes: Nodes,
}

impl Controller {
    fn new(first: u64, pods: &[u8]) -> Self {
        let mut publisher = Publisher::new(Compiler::default(), first);
        publisher.apply(Change::Namespace("shop".into(), Some(Labels::new())));
        pods.iter().for_each(|place| publisher.apply(pod(*place)));
        let newest = watch::Sender::new(Some(publisher.follow("n1")));
        Self { publisher, newest, nodes: Nodes::default() }
    }

    fn add(&mut self, place: u8) {
        self.publisher.apply(pod(place));
        for (_, program) in self.publisher.publish() {
            self.newest.send_replace(Some(program));
        }
    }

    fn follow(&self, has: Position) -> Follower {
        Follower::new(self.nodes.slot("n1"), self.newest.subscribe(), has)
    }

    fn applied(&self, generation: u64, error: Option<&str>) {
        let error = error.map(str::to_owned);
        self.nodes.find("n1").unwrap().applied(Applied { generation, error });
    }

    fn state(&self) -> NodeState {
        self.nodes.list()[0].state.clone()
    }
}

fn position(program: &Program) -> Position {
    Position { generation: program.generation, fingerprint: program.fingerprint() }
}

async fn waits(follower: &mut Follower) -> bool {
    tokio::time::timeout(Duration::from_secs(1), follower.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn changes_that_come_while_one_is_under_way_are_one() {
    let mut controller = Controller::new(100, &[1]);
    let mut follower = controller.follow(NOTHING);
    let mut agent = Program::default();
    let whole = follower.next().await.unwrap();
    assert_eq!(whole.from, 0);
    agent.apply(&whole).unwrap();
    for place in 2..50 {
        controller.add(place);
    }
    assert!(waits(&mut follower).await, "one change is under way");
    assert!(matches!(controller.state(), NodeState::UnderWay(_)));
    controller.applied(agent.generation, None);
    follower.acknowledged().await.unwrap();
    let delta = follower.next().await.unwrap();
    assert_eq!((delta.from, delta.pods.len()), (agent.generation, 48));
    agent.apply(&delta).unwrap();
    controller.applied(agent.generation, None);
    assert!(waits(&mut follower).await, "nothing is left to be sent");
    assert_eq!(Some(&agent), controller.publisher.newest("n1").map(|it| &**it));
    assert_eq!(controller.state(), NodeState::Applied);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_back_goes_on_from_what_it_has() {
    let mut controller = Controller::new(100, &[1]);
    let mut agent = Program::default();
    let mut follower = controller.follow(NOTHING);
    agent.apply(&follower.next().await.unwrap()).unwrap();
    // It enforced it, and the connection broke before it could say so.
    drop(follower);
    assert_eq!(controller.state(), NodeState::Away);
    controller.add(2);
    let mut follower = controller.follow(position(&agent));
    let delta = follower.next().await.unwrap();
    assert_eq!((delta.from, delta.size()), (agent.generation, 1));
    agent.apply(&delta).unwrap();
    controller.applied(agent.generation, None);
    // The same once more, acknowledged and with nothing new.
    drop(follower);
    let mut follower = controller.follow(position(&agent));
    assert!(waits(&mut follower).await);
}

#[tokio::test(start_paused = true)]
async fn another_leader_knows_a_program_by_its_fingerprint_and_sends_a_whole_one_otherwise() {
    let before = Controller::new(100, &[1, 2]);
    let mut agent = Program::default();
    agent.apply(&before.follow(NOTHING).next().await.unwrap()).unwrap();
    let same = Controller::new(9000, &[2, 1]);
    let delta = same.follow(position(&agent)).next().await.unwrap();
    assert!(delta.is_empty(), "{delta:?}");
    assert_eq!(delta.from, agent.generation);
    let other = Controller::new(9000, &[1, 2, 3]);
    let delta = other.follow(position(&agent)).next().await.unwrap();
    assert_eq!((delta.from, delta.pods.len()), (0, 3));
    // A generation that is known here, with another content: a leader of before counted to it, too.
    let counted = Position { generation: delta.to, fingerprint: Fingerprint(7) };
    let mut follower = other.follow(counted);
    let next = tokio::time::timeout(Duration::from_secs(1), follower.next()).await;
    assert_eq!(next.unwrap().unwrap().from, 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_stream_of_a_node_ends_the_first() {
    let controller = Controller::new(100, &[1]);
    let mut first = controller.follow(NOTHING);
    first.next().await.unwrap();
    let mut second = controller.follow(NOTHING);
    assert_eq!(first.next().await, Err(Ended::Replaced));
    assert_eq!(first.acknowledged().await, Err(Ended::Replaced));
    drop(first);
    assert_eq!(second.next().await.map(|delta| delta.from), Ok(0));
    assert_ne!(controller.state(), NodeState::Away);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fails_begins_again_and_is_told_of() {
    let controller = Controller::new(100, &[1]);
    let mut follower = controller.follow(NOTHING);
    let whole: Delta = follower.next().await.unwrap();
    // What it says of another generation is of no account.
    controller.applied(whole.to + 5, None);
    assert!(matches!(controller.state(), NodeState::UnderWay(_)));
    controller.applied(whole.to, Some("no netfilter"));
    assert_eq!(follower.acknowledged().await, Err(Ended::Failed));
    assert_eq!(follower.next().await, Err(Ended::Failed));
    assert_eq!(controller.state(), NodeState::Failing("no netfilter".to_owned()));
    let mut again = controller.follow(NOTHING);
    assert_eq!(again.next().await.map(|delta| delta.from), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_acknowledges_is_given_up() {
    let controller = Controller::new(100, &[1]);
    let mut follower = controller.follow(NOTHING);
    follower.next().await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(follower.acknowledged().await, Err(Ended::Silent));
    assert!(began.elapsed() >= SILENT);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_everything_was_read() {
    let controller = Controller::new(100, &[1]);
    controller.newest.send_replace(None);
    let mut follower = controller.follow(NOTHING);
    assert!(waits(&mut follower).await);
    assert_eq!(controller.state(), NodeState::NotCompiled);
    drop(controller.newest);
    assert_eq!(follower.next().await, Err(Ended::Over));
}
