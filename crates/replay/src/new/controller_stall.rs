//! The real server in a process of its own: reports and joins over gRPC, reviews over HTTPS, reads over
//! REST, with the owner of one shard of the conversations hanging.
//!
//! Before that the same mix at the same pace with nothing stuck, which is what "full speed" means on this
//! machine; after it, what was counted is compared with what was sent.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use node::client::{Answer, Client, ClientError, Endpoint};
use serde_json::{Value, json};
use stallproof::{Deadline, Tasks};
use tokio::sync::Semaphore;

use crate::incident::controller_stall::{DEADLINE, Load, RECORDS, due};
use crate::incident::{Cannot, Ran};
use crate::latency::Latencies;
use crate::outcome::Named;
use crate::plan::Plan;
use crate::record::{Recorder, ms};
use crate::stage::agents::{Agent, CONVERSATIONS, counted_sessions, facts};
use crate::stage::http::{self, Http};
use crate::stage::server::Server;

/// What an API server keeps open to a webhook, twice.
const REVIEWERS: usize = 48;
const READERS: usize = 8;
/// Joins under way at once.
const JOINERS: usize = 64;
/// Between two looks at what is due.
const PACE: Duration = Duration::from_millis(5);
/// For what is not the incident.
const PATIENCE: Duration = Duration::from_secs(120);
/// For an answer that was given at the deadline; how late it came is a figure of its own.
const ON_ITS_WAY: Duration = Duration::from_secs(5);
/// How many nodes join, again and again.
const NODES: usize = 4000;
/// Below this a p99 is the noise of a machine that also makes the load.
const NOISE_MS: f64 = 20.0;

pub(crate) fn run(plan: &Plan, recorder: &Recorder) -> Ran {
    let load = Load::of(plan);
    let mut server = Server::start(&plan.program, &plan.dir.join("data"))?;
    recorder.watch(server.process());
    let runtime = tokio::runtime::Runtime::new()?;
    let tasks = Tasks::new("load");
    runtime.block_on(replay(&mut server, load, recorder, &tasks))?;
    recorder.figure("restarts", f64::from(u8::from(!server.runs())));
    runtime.shutdown_background();
    Ok(())
}

async fn replay(server: &mut Server, load: Load, recorder: &Recorder, tasks: &Tasks) -> Ran {
    let shared = Shared {
        reviews: Asking::reviews(server)?,
        reads: Asking::reads(server),
        endpoint: Endpoint { addresses: vec![server.agents.to_string()], identity: None },
        recorder: recorder.clone(),
        tasks: tasks.clone(),
        asked: AtomicUsize::new(0),
        unanswered: AtomicUsize::new(0),
        longest: Latencies::default(),
    };
    let agents = shared.agents(load.agents).await?;
    let epoch = agents.first().map(|agent| agent.epoch);
    // As long as the stall: what a shared machine does now and then, it does to both.
    let quiet = Phase::begin(load, load.hold, false);
    let (_, agents) = shared.mix(&quiet, agents).await?;

    recorder.staged();
    let stall = Phase::begin(load, load.hold, true);
    server.hold()?;
    let (admin, said, stop, began) =
        (server.admin, recorder.clone(), tasks.stopping(), stall.began);
    let token = server.token.clone();
    tasks.spawn("naming", async move {
        stop.bound(name(admin, &token, said, began)).await;
    });
    let released = async {
        tokio::time::sleep(load.hold.saturating_sub(began.elapsed())).await;
        server.release()
    };
    let (mixed, released) = futures::join!(shared.mix(&stall, agents), released);
    released?;
    let ((reviewed, read), agents) = mixed?;

    recorder.figure("reviewsDecided", reviewed as f64);
    recorder.figure("readsAnswered", read as f64);
    let sent = stall.reports.taken();
    recorder.figure("reportsSent", sent as f64);
    recorder.figure("reportsMerged", (load.reports - sent) as f64);
    recorder.figure("asked", shared.asked.load(Relaxed) as f64);
    recorder.figure("unanswered", shared.unanswered.load(Relaxed) as f64);
    recorder.figure("longestMs", shared.longest.counted().ms(1.0).unwrap_or(f64::NAN));
    for (name, ratio, quiet, stall) in [
        ("reviewP99Ms", "reviewRatio", &quiet.review, &stall.review),
        ("readP99Ms", "readRatio", &quiet.read, &stall.read),
    ] {
        let [quiet, stall] =
            [quiet, stall].map(|times| times.counted().ms(0.99).unwrap_or(f64::NAN));
        recorder.figure(name, stall);
        recorder.figure(ratio, stall.max(NOISE_MS) / quiet.max(NOISE_MS));
    }
    shared.afterwards(server, agents, epoch).await
}

/// The same mix, evenly over a span: before the stall, or while it lasts.
struct Phase {
    load: Load,
    span: Duration,
    began: Instant,
    /// What is asked counts as the incident's.
    counts: bool,
    reports: Due,
    review: Latencies,
    read: Latencies,
}

impl Phase {
    fn begin(load: Load, span: Duration, counts: bool) -> Self {
        let (review, read) = (Latencies::default(), Latencies::default());
        let began = Instant::now();
        Self { load, span, began, counts, reports: Due::new(load.reports), review, read }
    }
}

/// Requests of one kind as they become due; thousands may wait for the next one.
struct Due {
    all: usize,
    due: Semaphore,
    taken: AtomicUsize,
}

impl Due {
    fn new(all: usize) -> Self {
        Self { all, due: Semaphore::new(0), taken: AtomicUsize::new(0) }
    }

    /// Waits for one; false when there are no more.
    async fn next(&self) -> bool {
        let Ok(one) = self.due.acquire().await else { return false };
        one.forget();
        if self.taken.fetch_add(1, Relaxed) + 1 == self.all {
            self.due.close();
        }
        true
    }

    fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Makes them due, evenly.
    async fn pace(&self, phase: &Phase) {
        let mut given = 0;
        while given < self.all {
            let now = due(self.all, phase.began.elapsed(), phase.span);
            self.due.add_permits(now - given);
            given = now;
            tokio::time::sleep(PACE).await;
        }
    }
}

/// A writer that hangs is on the ledger, and late.
async fn name(admin: std::net::SocketAddr, token: &str, recorder: Recorder, began: Instant) {
    let request = http::get("/debug/inflight?kind=shard&format=json", Some(token));
    loop {
        let asked = async {
            let answer = Http::plain(admin).await?.ask(&request, Duration::from_secs(2)).await?;
            Ok::<Value, Cannot>(serde_json::from_slice(&answer.body)?)
        };
        let found = asked.await.unwrap_or_default();
        let late =
            found["operations"].as_array().into_iter().flatten().find(|op| op["late"] == true);
        if let Some(late) = late {
            let text = |name: &str| late[name].as_str().unwrap_or_default().to_owned();
            let what = format!("{} {}", text("kind"), text("key"));
            return recorder.named(Named {
                what,
                step: text("step"),
                after_ms: ms(began.elapsed()),
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What all that make the load share.
struct Shared {
    reviews: Asking,
    reads: Asking,
    endpoint: Endpoint,
    recorder: Recorder,
    tasks: Tasks,
    asked: AtomicUsize,
    /// Neither answered nor refused with a time to come back.
    unanswered: AtomicUsize,
    longest: Latencies,
}

impl Shared {
    /// All agents, joined, each with a first report that is counted.
    async fn agents(&self, count: usize) -> Result<Vec<Agent>, Cannot> {
        let deadline = Deadline::after(PATIENCE);
        let join = |number| async move {
            let mut agent = Agent::new(number, RECORDS);
            let batch = agent.next();
            let counted = agent.until_counted(&batch, &self.endpoint, &self.tasks, deadline).await;
            counted.then_some(agent).ok_or("the server does not count reports")
        };
        let all = stream::iter((0..count).map(join)).buffer_unordered(JOINERS);
        Ok(all.try_collect().await?)
    }

    /// All of a phase. How many reviews and reads were answered, and the agents with their streams.
    async fn mix(
        &self,
        phase: &Phase,
        agents: Vec<Agent>,
    ) -> Result<((usize, usize), Vec<Agent>), Cannot> {
        let Load { reviews, reads, .. } = phase.load;
        let asked = async {
            futures::try_join!(
                self.ask(phase, &self.reviews, reviews, &phase.review),
                self.ask(phase, &self.reads, reads, &phase.read),
            )
        };
        let (asked, (), agents) =
            futures::join!(asked, self.join_all(phase), self.report_all(phase, agents));
        Ok((asked?, agents))
    }

    /// Makes a request, and counts it by how it ended.
    async fn made<T>(
        &self,
        phase: &Phase,
        request: impl Future<Output = Result<T, Refusal>>,
    ) -> Option<(T, Duration)> {
        let began = Instant::now();
        if !phase.counts {
            return request.await.ok().map(|value| (value, began.elapsed()));
        }
        self.asked.fetch_add(1, Relaxed);
        let asked = self.recorder.begin();
        let ended = request.await;
        let took = began.elapsed();
        self.longest.add(took);
        match ended {
            Ok(value) => {
                asked.answered();
                Some((value, took))
            }
            Err(Refusal::ComeBack) => {
                asked.refused();
                None
            }
            Err(Refusal::Failed(why)) => {
                asked.failed();
                if self.unanswered.fetch_add(1, Relaxed) < 5 {
                    self.recorder.note(why);
                }
                None
            }
        }
    }

    /// The reports of all agents as they are due, each from one that has none under way. What finds none
    /// such is merged into what an agent sends next: totals only grow. They come back with their streams.
    async fn report_all(&self, phase: &Phase, agents: Vec<Agent>) -> Vec<Agent> {
        let pace = async {
            phase.reports.pace(phase).await;
            // What nobody has taken by now is merged.
            phase.reports.due.close();
        };
        let work = agents.into_iter().map(|mut agent| async move {
            while phase.reports.next().await {
                let batch = agent.next();
                let request = async {
                    match agent
                        .send(&batch, &self.endpoint, &self.tasks, DEADLINE + ON_ITS_WAY)
                        .await
                    {
                        Ok(Answer::Counted { .. }) => Ok(()),
                        Ok(Answer::ComeBack { .. }) | Err(ClientError::ComeBack { .. }) => {
                            Err(Refusal::ComeBack)
                        }
                        Err(error) => Err(Refusal::Failed(format!("a report: {error}"))),
                    }
                };
                self.made(phase, request).await;
            }
            agent
        });
        futures::join!(futures::future::join_all(work), pace).0
    }

    async fn join_all(&self, phase: &Phase) {
        let joins = Due::new(phase.load.joins);
        let who = if phase.counts { "joins" } else { "before" };
        let work = (0..JOINERS).map(|_| async {
            while joins.next().await {
                // Some thousand nodes, which come again: an agent that restarts is another incarnation.
                let node = format!("{who}-{}", fastrand::usize(..NODES));
                let facts = facts(node, joins.taken() as u64);
                let request = async {
                    let deadline = Deadline::after(DEADLINE);
                    let joining = Client::join(&self.endpoint, &facts, &self.tasks, deadline);
                    match Box::pin(joining).await {
                        // Another one of this node came a moment later: that is an answer as well.
                        Ok(_) | Err(ClientError::Outdated { .. }) => Ok(()),
                        Err(ClientError::ComeBack { .. }) => Err(Refusal::ComeBack),
                        Err(error) => Err(Refusal::Failed(format!("a join: {error}"))),
                    }
                };
                self.made(phase, request).await;
            }
        });
        futures::join!(futures::future::join_all(work), joins.pace(phase));
    }

    /// Asks so often, evenly; how many were answered as they should be.
    async fn ask(
        &self,
        phase: &Phase,
        asking: &Asking,
        all: usize,
        took: &Latencies,
    ) -> Result<usize, Cannot> {
        let (asks, good) = (Due::new(all), AtomicUsize::new(0));
        let work = (0..asking.connections).map(|_| async {
            let mut connection = asking.connect().await?;
            while asks.next().await {
                let request = asking.request(&mut connection);
                if let Some(((), elapsed)) = self.made(phase, request).await {
                    took.add(elapsed);
                    let good = good.fetch_add(1, Relaxed) + 1;
                    if asking.is_level && phase.counts {
                        self.recorder.level(good as f64);
                    }
                } else {
                    connection = asking.connect().await?;
                }
            }
            Ok::<_, Cannot>(())
        });
        futures::join!(futures::future::try_join_all(work), asks.pace(phase)).0?;
        Ok(good.load(Relaxed))
    }

    /// When the writer is back: every agent's totals count, exactly.
    async fn afterwards(&self, server: &Server, agents: Vec<Agent>, epoch: Option<u64>) -> Ran {
        let deadline = Deadline::after(PATIENCE);
        let work = agents.into_iter().map(|mut agent| async move {
            let batch = agent.next();
            let counted = agent.until_counted(&batch, &self.endpoint, &self.tasks, deadline).await;
            (agent, counted)
        });
        let agents = futures::future::join_all(work).await;
        let counted = agents.iter().filter(|(_, counted)| *counted).count();
        self.recorder.figure("countedAfter", counted as f64);
        let others = agents.iter().filter(|(agent, _)| Some(agent.epoch) != epoch).count();
        self.recorder.figure("termsEnded", f64::from(u8::from(others > 0)));
        let wanted: u64 = agents.iter().map(|(agent, _)| agent.sessions()).sum();
        // What is read was published less than a second ago.
        let mut wrong = f64::NAN;
        for _ in 0..20 {
            let found = counted_sessions(server).await?;
            wrong = (found as f64 - wanted as f64).abs();
            if wrong == 0.0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.recorder.figure("sessions", wanted as f64);
        self.recorder.figure("sessionsWrong", wrong);
        Ok(())
    }
}

#[derive(Debug)]
enum Refusal {
    /// With a time.
    ComeBack,
    Failed(String),
}

/// One request that is asked again and again.
struct Asking {
    address: std::net::SocketAddr,
    tls: Option<tokio_rustls::TlsConnector>,
    request: Vec<u8>,
    /// What an answer must contain.
    contains: &'static str,
    connections: usize,
    /// What was answered is the level of the run.
    is_level: bool,
}

impl Asking {
    fn reviews(server: &Server) -> Result<Self, Cannot> {
        let env = (0..20).map(|i| json!({"name": format!("SETTING_{i}"), "value": "x".repeat(24)}));
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "shop",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "userInfo": {"username": "alice@acme.io", "groups": ["devs", "system:authenticated"]},
                "object": {"metadata": {"name": "cart", "labels": {"app": "cart"}}, "spec": {"containers": [{
                    "name": "cart", "image": "harbor.acme.io/web/cart:v2", "env": env.collect::<Vec<_>>(),
                }]}},
            },
        });
        Ok(Self {
            address: server.webhook,
            tls: Some(http::any_certificate()?),
            request: http::post("/admit?timeout=10s", &review.to_string()),
            contains: "\"allowed\":true",
            connections: REVIEWERS,
            is_level: true,
        })
    }

    fn reads(server: &Server) -> Self {
        Self {
            address: server.api,
            tls: None,
            request: http::get(CONVERSATIONS, Some(&server.token)),
            contains: "\"conversations\"",
            connections: READERS,
            is_level: false,
        }
    }

    async fn connect(&self) -> Result<Http, Cannot> {
        // A webhook without its certificate yet does not shake hands: it has a moment.
        let until = Instant::now() + PATIENCE;
        loop {
            let connected = match &self.tls {
                Some(tls) => Http::tls(self.address, tls).await,
                None => Http::plain(self.address).await,
            };
            match connected {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() > until => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn request(&self, connection: &mut Http) -> Result<(), Refusal> {
        let failed = |error: std::io::Error| Refusal::Failed(format!("{}: {error}", self.address));
        let mut answer = connection.ask(&self.request, DEADLINE).await;
        // A connection that was idle may have been closed in the meantime: any HTTP client tries once more.
        if answer.as_ref().is_err_and(|error| error.kind() != std::io::ErrorKind::TimedOut) {
            let failed = |error: Cannot| Refusal::Failed(format!("{}: {error}", self.address));
            *connection = self.connect().await.map_err(failed)?;
            answer = connection.ask(&self.request, DEADLINE).await;
        }
        let answer = answer.map_err(failed)?;
        let said = String::from_utf8_lossy(&answer.body);
        match answer.status {
            200 if said.contains(self.contains) => Ok(()),
            429 | 503 if answer.retry => Err(Refusal::ComeBack),
            status => Err(Refusal::Failed(format!("{}: {status}: {said:.200}", self.address))),
        }
    }
}
