//! What policies would have stopped of the conversations that were seen.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use policy::{Answer, Inputs, Probe, ProbePort};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Files, Mode, offline, online, port_text};
use crate::cli::client::{self, ClientResult, Route, ServerFlags, decode};
use crate::cli::files::read;
use crate::cli::table::Table;
use crate::cli::terminal::Paint;
use crate::output::{Failure, Output, Verdict, yes_or_no};
use crate::values;

/// As many conversations as a server tells, several times over.
const LARGEST: u64 = 256 << 20;

/// The most conversations that a server tells at once.
const MOST: u32 = 10_000;

#[derive(Debug, clap::Args)]
pub(super) struct DryRun {
    /// Files with policies: all there are if --cluster is given, else those to be added to what the
    /// server has; one with the name of another replaces it
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    policies: Vec<PathBuf>,
    /// Files with Namespaces, Pods, Nodes and Services, as kubectl prints them; without any, a running
    /// server is asked
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "conversations")]
    cluster: Vec<PathBuf>,
    /// The mode of workloads that are in no Group with a mode
    #[arg(long, value_enum, default_value_t, requires = "cluster")]
    mode: Mode,
    /// The file with what `fairlead conversations -o json` printed, or `-` for standard input
    #[arg(long, value_name = "FILE", requires = "cluster")]
    conversations: Option<PathBuf>,
    /// Of the server's conversations, those since so long ago
    #[arg(long, value_name = "TIME", value_parser = values::since, default_value = "24h",
          conflicts_with = "cluster")]
    since: Duration,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// A line of `fairlead conversations -o json`, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conversation {
    client: ConversationEnd,
    server: ConversationEnd,
    /// What the client's node resolved to the server's address.
    #[serde(default)]
    server_names: Vec<String>,
    /// None of what was folded.
    protocol: Option<String>,
    port: Option<u16>,
    #[serde(default)]
    sessions: u64,
    #[serde(default)]
    last: String,
}

#[derive(Deserialize)]
struct ConversationEnd {
    kind: String,
    name: String,
    address: String,
}

#[derive(Deserialize)]
struct Conversations {
    conversations: Vec<Conversation>,
}

impl ConversationEnd {
    fn text(&self) -> &str {
        if self.kind == "workload" { &self.name } else { &self.address }
    }
}

impl Conversation {
    /// None if it says too little: it was folded, or it is with a Service's own address.
    fn probe(&self) -> Option<Probe> {
        if self.client.kind == "service" || self.server.kind == "service" {
            return None;
        }
        let protocol = self.protocol.clone()?;
        let has_ports = ["tcp", "udp", "sctp"].contains(&protocol.as_str());
        Some(Probe {
            from: self.client.text().to_owned(),
            to: self.server.text().to_owned(),
            protocol,
            port: self.port.filter(|_| has_ports).map(ProbePort::Number),
            to_name: None,
        })
    }

    /// By the name that lets it pass, if the server has one.
    fn answer(&self, probe: &Probe, inputs: &Inputs) -> Option<Answer> {
        let names = self.server_names.iter().cloned().map(Some).chain([None]);
        let answers = names.map(|to_name| {
            let probe = Probe { to_name, ..probe.clone() };
            probe.answer(&inputs.cluster, &inputs.policies).ok()
        });
        let answers: Option<Vec<_>> = answers.collect();
        let mut answers = answers?;
        let passes = answers.iter().position(Answer::allowed).unwrap_or(answers.len() - 1);
        Some(answers.swap_remove(passes))
    }
}

pub(super) fn run(args: &DryRun) -> Verdict {
    let Some(conversations) = &args.conversations else { return client::run(online(args)) };
    let (cluster, policies) = (args.cluster.clone(), args.policies.clone());
    let inputs = offline::inputs(&Files { cluster, policies, mode: args.mode })?;
    let shown = conversations.display();
    let seen: Conversations =
        serde_json::from_str(&read(conversations, LARGEST)?).map_err(|wrong| {
            let hint = "it is what `fairlead conversations -o json` prints";
            Failure(format!("{shown} has no conversations: {wrong}; {hint}"))
        })?;
    judge(args, &inputs, &seen)
}

/// Judges the conversations that the server has by its policies and those of the files.
async fn online(args: &DryRun) -> ClientResult<ExitCode> {
    let mut inputs = online::inputs(&args.server).await?;
    offline::add_policies(&mut inputs, &args.policies)?;
    let since = Timestamp::now() - args.since;
    let route = Route::to(["guard", "conversations"]).with("since", since).with("limit", MOST);
    let answer: Value = args.server.open()?.get(&route).await?;
    if let (Some(matched), true) = (answer["matched"].as_u64(), answer["continue"].is_string()) {
        eprintln!("the latest {MOST} of {matched} conversations are looked at");
    }
    let seen: Conversations = decode(&answer)?;
    Ok(judge(args, &inputs, &seen)?)
}

fn judge(args: &DryRun, inputs: &Inputs, seen: &Conversations) -> Verdict {
    let (mut judged, mut unjudged) = (0_usize, 0_usize);
    let mut stopped: Vec<(&Conversation, Answer)> = Vec::new();
    for conversation in &seen.conversations {
        let probe = conversation.probe();
        // A pod that is gone since cannot be asked about.
        let answer = probe.and_then(|it| conversation.answer(&it, inputs));
        match answer {
            None => unjudged += 1,
            Some(answer) => {
                judged += 1;
                if !answer.allowed() {
                    stopped.push((conversation, answer));
                }
            }
        }
    }
    let lines: Vec<Value> = stopped
        .iter()
        .map(|(conversation, answer)| {
            let mut line = json!(answer);
            line["sessions"] = json!(conversation.sessions);
            line["last"] = json!(conversation.last);
            line
        })
        .collect();
    let answer = json!({"judged": judged, "unjudged": unjudged, "stopped": lines});
    args.output.print(&answer, || {
        let mut table = Table::new(["FROM", "TO", "PORT", "SESSIONS", "LAST", "WHY"]);
        for (conversation, answer) in &stopped {
            let side =
                if answer.egress.verdict == "deny" { &answer.egress } else { &answer.ingress };
            let port = port_text(&answer.protocol, answer.port.as_ref());
            let sessions = conversation.sessions.to_string();
            let cells = [&answer.from, &answer.to, &port, &sessions, &conversation.last, &side.why];
            table.row(cells.into_iter().map(String::as_str));
        }
        table.render(Paint::stdout())
    })?;
    let count = stopped.len();
    eprintln!("{count} of {judged} conversations would have been stopped");
    if unjudged > 0 {
        eprintln!(
            "{unjudged} could not be judged: folded, with a Service's own address, or with a pod that is \
             not in the files of --cluster"
        );
    }
    Ok(yes_or_no(stopped.is_empty()))
}
