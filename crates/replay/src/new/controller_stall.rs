//! The real server in a process of its own: reports and joins over gRPC, reviews over HTTPS, reads over
//! REST, with the owner of one shard of the conversations hanging.
//!
//! Before that the same reviews and reads with nothing stuck, for as long as it takes to know them; after
//! it, what was counted is compared with what was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use edge::agents::Batch;
use edge::agents::client::{Answer, Client, ClientError, Endpoint};
use flow::{Deadline, Tasks};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

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
/// The time before: for a p99 of the same pace.
const BEFORE: Duration = Duration::from_secs(5);
/// Between two looks at what is due.
const PACE: Duration = Duration::from_millis(5);
/// For what is not the incident.
const PATIENCE: Duration = Duration::from_secs(120);
/// Below this a p99 is the noise of a machine that also makes the load.
const NOISE_MS: f64 = 50.0;

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
    let shared = Arc::new(Shared {
        load,
        endpoint: Endpoint { addresses: vec![server.agents.to_string()], identity: None },
        recorder: recorder.clone(),
        tasks: tasks.clone(),
        asked: AtomicUsize::new(0),
        unanswered: AtomicUsize::new(0),
        longest: Latencies::default(),
    });
    let agents = shared.agents().await?;
    let epoch = agents.first().map(|agent| agent.epoch);

    let reviews = Asking::reviews(server)?;
    let reads = Asking::reads(server);
    let before = load.part(BEFORE);
    let quiet = (Latencies::default(), Latencies::default());
    futures::try_join!(
        shared.ask(&reviews, before.reviews, BEFORE, &quiet.0, false),
        shared.ask(&reads, before.reads, BEFORE, &quiet.1, false),
    )?;

    recorder.staged();
    let began = Instant::now();
    server.hold()?;
    let (stuck, said, naming) = (server.admin, recorder.clone(), tasks.stopping());
    tasks.spawn("naming", async move {
        naming.bound(name(stuck, said, began)).await;
    });
    let busy = (Latencies::default(), Latencies::default());
    let sent = AtomicUsize::new(0);
    let flood = async {
        let all = futures::try_join!(
            shared.ask(&reviews, load.reviews, load.hold, &busy.0, true),
            shared.ask(&reads, load.reads, load.hold, &busy.1, true),
            shared.join_all(began),
        );
        let (reviewed, read, ()) = all?;
        recorder.figure("reviewsDecided", reviewed as f64);
        recorder.figure("readsAnswered", read as f64);
        Ok::<_, Cannot>(())
    };
    let reporting = shared.report_all(agents, &sent, began);
    let released = async {
        tokio::time::sleep(load.hold.saturating_sub(began.elapsed())).await;
        server.release()
    };
    let (flooded, agents, released) = futures::join!(flood, reporting, released);
    flooded?;
    released?;

    let sent = sent.load(Relaxed).min(load.reports);
    recorder.figure("reportsSent", sent as f64);
    recorder.figure("reportsMerged", (load.reports - sent) as f64);
    recorder.figure("asked", shared.asked.load(Relaxed) as f64);
    recorder.figure("unanswered", shared.unanswered.load(Relaxed) as f64);
    recorder.figure("longestMs", shared.longest.counted().ms(1.0).unwrap_or(f64::NAN));
    for (name, ratio, quiet, busy) in [
        ("reviewP99Ms", "reviewRatio", &quiet.0, &busy.0),
        ("readP99Ms", "readRatio", &quiet.1, &busy.1),
    ] {
        let [quiet, busy] = [quiet, busy].map(|times| times.counted().ms(0.99).unwrap_or(f64::NAN));
        recorder.figure(name, busy);
        recorder.figure(ratio, busy.max(NOISE_MS) / quiet.max(NOISE_MS));
    }
    shared.afterwards(server, agents, epoch).await
}

impl Load {
    /// As much as comes in `span`.
    fn part(&self, span: Duration) -> Self {
        let part = |all: usize| due(all, span, self.hold.max(span)).max(1);
        Self { reviews: part(self.reviews), reads: part(self.reads), ..*self }
    }
}

/// A writer that hangs is on the ledger, and late.
async fn name(admin: std::net::SocketAddr, recorder: Recorder, began: Instant) {
    let request = http::get("/debug/inflight?kind=shard&format=json", None);
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
    load: Load,
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
    async fn agents(&self) -> Result<Vec<Agent>, Cannot> {
        let deadline = Deadline::after(PATIENCE);
        let join = |number| async move {
            let mut agent = Agent::new(number, RECORDS);
            let batch = agent.next();
            let counted = agent.until_counted(&batch, &self.endpoint, &self.tasks, deadline).await;
            counted.then_some(agent).ok_or("the server does not count reports")
        };
        let all = stream::iter((0..self.load.agents).map(join)).buffer_unordered(JOINERS);
        let agents: Vec<Agent> = all.try_collect().await?;
        Ok(agents)
    }

    /// A whole request of an agent may take as long as its deadline, and the answer its way.
    async fn send(&self, agent: &mut Agent, batch: &Batch) -> Result<Answer, ClientError> {
        agent.send(batch, &self.endpoint, &self.tasks, DEADLINE + Duration::from_secs(1)).await
    }

    /// Counts a request that was made, by how it ended.
    async fn made<T>(
        &self,
        request: impl Future<Output = Result<T, Refusal>>,
    ) -> Option<(T, Duration)> {
        self.asked.fetch_add(1, Relaxed);
        let asked = self.recorder.begin();
        let began = Instant::now();
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
    async fn report_all(
        self: &Arc<Self>,
        agents: Vec<Agent>,
        sent: &AtomicUsize,
        began: Instant,
    ) -> Vec<Agent> {
        let Load { reports, hold, .. } = self.load;
        let work = agents.into_iter().map(|mut agent| async move {
            while began.elapsed() < hold {
                if sent.load(Relaxed) >= due(reports, began.elapsed(), hold) {
                    tokio::time::sleep(PACE).await;
                    continue;
                }
                if sent.fetch_add(1, Relaxed) >= reports {
                    break;
                }
                let batch = agent.next();
                let request = async {
                    match self.send(&mut agent, &batch).await {
                        Ok(Answer::Counted { .. }) => Ok(()),
                        Ok(Answer::ComeBack { .. }) | Err(ClientError::ComeBack { .. }) => {
                            Err(Refusal::ComeBack)
                        }
                        Err(error) => Err(Refusal::Failed(format!("a report: {error}"))),
                    }
                };
                self.made(request).await;
            }
            agent
        });
        futures::future::join_all(work).await
    }

    async fn join_all(&self, began: Instant) -> Ran {
        let Load { joins, hold, .. } = self.load;
        let sent = AtomicUsize::new(0);
        let work = (0..JOINERS).map(|_| async {
            while sent.load(Relaxed) < joins {
                if sent.load(Relaxed) >= due(joins, began.elapsed(), hold) {
                    tokio::time::sleep(PACE).await;
                    continue;
                }
                let number = sent.fetch_add(1, Relaxed);
                if number >= joins {
                    break;
                }
                // Ten thousand nodes, which come again: an agent that restarts begins another incarnation.
                let facts =
                    facts(format!("joins-{}", number % 10_000), (number / 10_000 + 1) as u64);
                let request = async {
                    let deadline = Deadline::after(DEADLINE);
                    match Client::join(&self.endpoint, &facts, &self.tasks, deadline).await {
                        Ok(_) => Ok(()),
                        Err(ClientError::ComeBack { .. }) => Err(Refusal::ComeBack),
                        Err(error) => Err(Refusal::Failed(format!("a join: {error}"))),
                    }
                };
                self.made(request).await;
            }
        });
        futures::future::join_all(work).await;
        Ok(())
    }

    /// Asks so often over `span`, evenly; how many were answered as they should be.
    async fn ask(
        &self,
        asking: &Asking,
        all: usize,
        span: Duration,
        took: &Latencies,
        counts: bool,
    ) -> Result<usize, Cannot> {
        let (sent, good, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
        let work = (0..asking.connections).map(|_| async {
            let mut connection = asking.connect().await?;
            while sent.load(Relaxed) < all {
                if sent.load(Relaxed) >= due(all, began.elapsed(), span) {
                    tokio::time::sleep(PACE).await;
                    continue;
                }
                if sent.fetch_add(1, Relaxed) >= all {
                    break;
                }
                let request = asking.request(&mut connection);
                if !counts {
                    let asked = Instant::now();
                    request.await.map_err(|refusal| format!("before the stall: {refusal:?}"))?;
                    took.add(asked.elapsed());
                    continue;
                }
                if let Some(((), elapsed)) = self.made(request).await {
                    took.add(elapsed);
                    let good = good.fetch_add(1, Relaxed) + 1;
                    if asking.is_level {
                        self.recorder.level(good as f64);
                    }
                } else {
                    connection = asking.connect().await?;
                }
            }
            Ok::<_, Cannot>(())
        });
        futures::future::try_join_all(work).await?;
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
