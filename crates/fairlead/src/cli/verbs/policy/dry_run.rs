//! What policies would have stopped of the conversations that were seen.

use std::path::PathBuf;

use policy::{Answer, Probe, ProbePort};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Files, offline, port_text};
use crate::cli::files::read;
use crate::cli::table::Table;
use crate::cli::terminal::Paint;
use crate::output::{Failure, Output, Verdict, yes_or_no};

/// As many conversations as a server tells, several times over.
const LARGEST: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct DryRun {
    #[command(flatten)]
    files: Files,
    /// The file with what `fairlead conversations -o json` printed, or `-` for standard input
    #[arg(long, value_name = "FILE")]
    conversations: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// A line of `fairlead conversations -o json`, as far as it matters here.
#[derive(Deserialize)]
struct Conversation {
    client: ConversationEnd,
    server: ConversationEnd,
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
}

pub(super) fn run(args: &DryRun) -> Verdict {
    let inputs = offline::inputs(&args.files)?;
    let shown = args.conversations.display();
    let seen: Conversations =
        serde_json::from_str(&read(&args.conversations, LARGEST)?).map_err(|wrong| {
            let hint = "it is what `fairlead conversations -o json` prints";
            Failure(format!("{shown} has no conversations: {wrong}; {hint}"))
        })?;
    let (mut judged, mut unjudged) = (0_usize, 0_usize);
    let mut stopped: Vec<(&Conversation, Answer)> = Vec::new();
    for conversation in &seen.conversations {
        let probe = conversation.probe();
        // A pod that is gone since cannot be asked about.
        let answer = probe.and_then(|it| it.answer(&inputs.cluster, &inputs.policies).ok());
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
