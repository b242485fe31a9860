//! The result: a plain value that renders to text, Markdown, HTML, and as JSON is a contract.
//!
//! Names are snake_case and stable. A list without entries and an option without value are left
//! out of the JSON. Fields may be added; none is renamed, and none changes its meaning.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Everything that one examination found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// What was read, in the order in which it was given.
    pub inputs: Vec<InputSummary>,
    /// Worst consequence first. Empty: no stall was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Everything with a time, earliest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelineEvent>,
    /// Pairs of dumps of one process: who moved, who did not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// What else is parked in the last dump, most first: waiting is what goroutines do, and nothing
    /// shows that these are stuck, unless `wants` says that they can never proceed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<PathCount>,
    /// Who waits for what and who holds it, for drawing.
    #[serde(skip_serializing_if = "WaitGraph::is_empty")]
    pub graph: WaitGraph,
    /// What the reader of this report must know besides: limits of the evidence, refusals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// One input and what it was taken for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InputSummary {
    /// The name it was given by: a path, `archive.zip!member`, an address, `-`.
    pub name: String,
    /// What it was recognised as, one entry a piece: `goroutine profile, debug=2 text`, `klog`.
    pub taken_for: Vec<String>,
    /// Bytes read, after decompression.
    pub size: u64,
    /// What came out of it, in words: `190,359 goroutines in 23 stacks`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// What could not be used, where, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
}

/// A part of an input that could not be used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusal {
    /// The line, counted from one, where the input is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Why, in a sentence that says what to do.
    pub why: String,
}

/// A fault that was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// Stable for the same fault in the same inputs, and unique in the report.
    pub id: String,
    /// The class of fault, as far as the evidence goes.
    pub class: FaultClass,
    /// How bad it is for those who depend on the process.
    pub severity: Severity,
    /// The finding in one line.
    pub title: String,
    /// What is stuck or exhausted.
    pub resource: Resource,
    /// For a lock: how it is held, and what proves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Who waits.
    #[serde(skip_serializing_if = "Waiters::is_empty")]
    pub waiters: Waiters,
    /// Since when, as far as the evidence goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// Who may hold it, most likely first. Empty: nobody is named, and `no_holder` says why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// Why no holder is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_holder: Option<String>,
    /// The deadlock, step by step; the last step waits for the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<CycleStep>,
    /// What else cannot proceed because of this.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blast_radius: Vec<Blast>,
    /// The way out for this class of fault: two sentences.
    pub remedy: String,
    /// What to collect next, where the evidence is not enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collect_next: Vec<String>,
    /// The lines that the finding rests on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// How sure the finding is, and why.
    pub confidence: Confidence,
    /// Further facts in words: figures from metrics, what the logs say of the same resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

/// Classes of fault. Each has one remedy.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// Two locks taken in opposite orders.
    LockOrderInversion,
    /// A goroutine reads again under its own read lock while a writer is queued between.
    RecursiveReadLock,
    /// A goroutine takes a lock that it holds already.
    SelfDeadlock,
    /// A cycle over locks, channels and semaphores that is none of the above.
    Deadlock,
    /// A lock is held while its holder waits for the network, a file or a process.
    HeldAcrossIo,
    /// A lock is held while its holder waits for another lock.
    HeldAcrossLock,
    /// A lock is held while its holder waits for a channel, a wait group or a condition.
    HeldAcrossChannel,
    /// A lock is held while its holder sleeps or computes.
    HeldAcrossWork,
    /// A lock that nobody in complete stacks can be holding: an unlock was missed.
    LostUnlock,
    /// All of a bounded set (connections, tokens, workers) are taken.
    ExhaustedPool,
    /// Senders wait for one who receives too slowly or not at all.
    SlowConsumer,
    /// Receivers wait for one who never sends or closes.
    SilentProducer,
    /// A file system or a device does not answer; no lock is seen to be held for it.
    StuckIo,
    /// Goroutines that can never proceed, because nothing reaches what they wait for.
    Leak,
    /// Refused work comes back at once and keeps the queue full.
    RetryStorm,
    /// A negative or outdated answer is kept for ever.
    StaleCache,
    /// Leadership was lost: a consequence of the stall, not its cause.
    LeaderLoss,
    /// Memory is above its limit.
    MemoryOverLimit,
    /// Requests were begun and never answered.
    UnansweredRequests,
    /// Many wait for a lock whose holder is at work, or which is seen to change hands: it is busy,
    /// not stuck.
    HotLock,
    /// A queue behind one resource; the evidence does not say why it does not move.
    #[default]
    Queue,
}

/// The severity of a finding, worst first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The process, or what serves its clients, stands still.
    Critical,
    /// A part of it stands still.
    Serious,
    /// A few goroutines stand still; nothing else is seen to wait for them.
    #[default]
    Minor,
}

/// What is waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// Its kind.
    pub kind: ResourceKind,
    /// The name to call it by: `controller/cache.cacheMutex`, `main.Cache`.
    pub name: String,
    /// The package, in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The Go type that has it as a field, without package, where it is a field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The field, where the evidence shows it: as a name, or as `+0x18` from the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The package variable, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The address, where the evidence is exact: `0xc00001a098`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The functions that take it, as seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
}

/// Kinds of things to wait for.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// `sync.Mutex`.
    Mutex,
    /// `sync.RWMutex`.
    RwMutex,
    /// A lock whose stacks do not show which of the two.
    Lock,
    /// `sync.Once`.
    Once,
    /// A channel, by operation or `select`.
    Channel,
    /// `sync.WaitGroup`.
    WaitGroup,
    /// `sync.Cond`.
    Condition,
    /// `golang.org/x/sync/semaphore` and its like.
    Semaphore,
    /// A pool of connections, tokens or workers.
    Pool,
    /// Network, file or process I/O.
    Io,
    /// Memory.
    Memory,
    /// Requests of clients.
    Requests,
    /// A lease or a raft leadership.
    Leadership,
    /// A cache.
    Cache,
    /// Anything else.
    #[default]
    Other,
}

/// How a lock is held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Read, write or unknown.
    pub mode: HeldMode,
    /// The rule that says so.
    pub why: String,
    /// The lines that prove it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// Modes of holding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldMode {
    /// One or more readers hold it.
    Read,
    /// One writer holds it, or the owner of a plain mutex.
    Write,
    /// The evidence does not say.
    #[default]
    Unknown,
}

/// Who waits for a resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiters {
    /// The number of all who wait.
    pub total: u64,
    /// The number of those who want to read, where it is a lock.
    #[serde(skip_serializing_if = "is_zero")]
    pub readers: u64,
    /// The number of those who want to write; of a plain mutex, of all.
    #[serde(skip_serializing_if = "is_zero")]
    pub writers: u64,
    /// The waiters grouped by what they came in for, the largest group first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_entry: Vec<EntryCount>,
    /// The waiters grouped by call path, the largest group first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_path: Vec<PathCount>,
}

/// Waiters that came in the same way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntryCount {
    /// How it was entered.
    pub kind: EntryKind,
    /// The name to call it by: `ReportConnections`, `/validate`, `groupRemovalEvent.Expire`.
    pub name: String,
    /// The function in full.
    pub function: String,
    /// The number of waiters in the group.
    pub count: u64,
}

/// Ways into a process.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A gRPC method.
    Grpc,
    /// An HTTP handler.
    Http,
    /// An admission webhook.
    Webhook,
    /// A timer or ticker.
    Timer,
    /// A watch, informer or event handler.
    Watcher,
    /// A worker of a queue or controller.
    Worker,
    /// `main`.
    Main,
    /// A thread of a thread dump; threads of one pool share a name.
    Thread,
    /// A goroutine that the program starts by itself.
    #[default]
    Goroutine,
}

/// Waiters on the same stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCount {
    /// The number of waiters in the group.
    pub count: u64,
    /// What they want: `read`, `write (head of the queue)`, `write (queued)`, `send`…
    pub wants: String,
    /// Function names, innermost first, without the runtime's own.
    pub frames: Vec<String>,
    /// Where it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// Since when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Since {
    /// The earliest time that the evidence shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Minutes before the dump, from its headers: plus or minus one cycle of the garbage collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u64>,
    /// The figure in words, with its uncertainty.
    pub text: String,
    /// Where it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// A goroutine, or goroutines on the same stack, that may hold the resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Its number, where the form has it and it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goroutine: Option<u64>,
    /// The name of the thread, where it is one of a thread dump.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// How many are on this stack.
    pub count: u64,
    /// The frame that makes it a candidate.
    pub frame: String,
    /// What it waits for itself, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_on: Option<String>,
    /// Function names, innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<String>,
    /// How sure, and why.
    pub confidence: Confidence,
    /// Where it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// One goroutine of a deadlock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CycleStep {
    /// Its number, where the form has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goroutine: Option<u64>,
    /// The name of the thread, where it is one of a thread dump.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// What it holds.
    pub holds: String,
    /// What it waits for, which the next step holds.
    pub waits_for: String,
    /// The frame in which it waits.
    pub frame: String,
    /// Where it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// Something that cannot proceed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blast {
    /// What: `gRPC ReportConnections`, `wait group in main.run`.
    pub what: String,
    /// How many goroutines.
    pub count: u64,
    /// Why it cannot.
    pub why: String,
}

/// The confidence in a claim, and what earned it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confidence {
    /// The level.
    pub level: Level,
    /// What earned it, or what it lacks.
    pub why: String,
}

/// Levels of confidence, surest first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The evidence admits nothing else.
    Certain,
    /// The evidence fits, and nothing seen fits better.
    Likely,
    /// The evidence admits it, and others beside it.
    #[default]
    Possible,
}

/// A line that a claim rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// The input's name.
    pub input: String,
    /// The line, counted from one, where the input is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The line itself, or what was read there, cut to a readable length.
    pub text: String,
}

/// Something that happened at a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimelineEvent {
    /// When. Logs without a zone are taken as UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The last time, for what repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What kind of event.
    pub kind: EventKind,
    /// The event in one line.
    pub text: String,
    /// The number of times, for what repeats.
    pub count: u64,
    /// A figure to plot, with `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The figure's unit: `bytes`, `goroutines`, `seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The `id` of the finding that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
    /// Where it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The first sign.
    Onset,
    /// Something that had not been seen before.
    #[default]
    Anomaly,
    /// Something that repeats.
    Loop,
    /// Leadership won, lost or moved.
    Leader,
    /// A process or container ended or began.
    Restart,
    /// A memory figure.
    Memory,
    /// A dump was taken.
    Dump,
    /// A metric's figure.
    Metric,
}

/// Two dumps of one process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// The earlier input.
    pub first: String,
    /// The later input.
    pub second: String,
    /// Whether goroutines were matched by number, or only counted by stack.
    pub by_goroutine: bool,
    /// In both, on the same stack: did not move.
    pub stuck: u64,
    /// In both, on another stack: moved. Zero where only counted by stack.
    pub moved: u64,
    /// Only in the later.
    pub arrived: u64,
    /// Only in the earlier.
    pub left: u64,
    /// The stacks of those that did not move, the largest group first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stuck_paths: Vec<PathCount>,
}

/// Goroutines and resources, and the edges between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitGraph {
    /// The nodes.
    pub nodes: Vec<GraphNode>,
    /// The edges.
    pub edges: Vec<GraphEdge>,
}

impl WaitGraph {
    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// A node to draw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GraphNode {
    /// Unique in the graph.
    pub id: String,
    /// What it is.
    pub kind: NodeKind,
    /// The text in the box.
    pub label: String,
    /// How many goroutines, or for a resource how many wait for it.
    pub count: u64,
    /// The `id` of the finding that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

/// Kinds of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Goroutines that came in the same way and stand in the same place.
    #[default]
    Goroutines,
    /// Something waited for.
    Resource,
}

/// An edge to draw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GraphEdge {
    /// A node's `id`.
    pub from: String,
    /// A node's `id`.
    pub to: String,
    /// Goroutines wait for a resource, or a resource is held by goroutines.
    pub kind: EdgeKind,
    /// How many goroutines.
    pub count: u64,
    /// How sure; waiting is always certain.
    pub confidence: Level,
    /// Whether it is part of a cycle.
    #[serde(skip_serializing_if = "is_false")]
    pub in_cycle: bool,
}

/// Kinds of edges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// Goroutines wait for a resource.
    #[default]
    WaitsFor,
    /// A resource is held by goroutines.
    HeldBy,
}

/// A remark.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// The remark, in a sentence.
    pub text: String,
    /// The input that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

impl Waiters {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

// serde's `skip_serializing_if` hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(b: &bool) -> bool {
    !*b
}
