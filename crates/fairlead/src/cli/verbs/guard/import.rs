use std::path::PathBuf;
use std::process::ExitCode;

use ipnet::IpNet;
use neuvector::{Imported, Outcome, Settings};
use objects::Kind;
use serde_json::{Value, json};

use crate::cli::client::{Body, ClientResult, Route, Server, ServerFlags};
use crate::cli::files;
use crate::cli::listing::{field, fields, items};
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::cli::verbs::conversations::{endpoint, port};
use crate::output::{self, Failure, Output};

/// As many as the server takes at once, with room to spare.
const DOCUMENTS: usize = 200;

/// Import groups, network rules, response rules, admission rules, webhooks, vulnerability profiles and roots of
/// trust of NeuVector
///
/// Files are exports of NeuVector (`/v1/file/group`, `/v1/file/admission`, `/v1/file/vulnerability/profile`), its
/// resources as kubectl prints them, or what `GET /v1/scan/sigstore/root_of_trust` answers. What is imported never allows more than NeuVector did: a rule that would is refused, one that can only
/// be stricter is changed, and both are said. The same files import the same again. Exit 1 if something was
/// refused.
///
/// Examples:
///   fairlead guard import groups.yaml admission.yaml --dry-run   what would become what, and why
///   fairlead guard import groups.yaml --diff                     what would be judged otherwise, of what was seen
///   fairlead guard import groups.yaml                            write it
///   kubectl get nvclustersecurityrules,nvgroupdefinitions -o yaml | fairlead guard import -
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// YAML or JSON, or `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Say what would become what, and write nothing; needs no server
    #[arg(long)]
    dry_run: bool,
    /// Write nothing, and show which of the recorded conversations would be judged otherwise with what would be
    /// imported than they are now; exit 1 if one would be a violation that is none now
    #[arg(long)]
    diff: bool,
    /// With --diff: without the rules that are written and learned so far
    #[arg(long, requires = "diff")]
    alone: bool,
    /// Networks in which pods have their addresses, separated by commas; every private one unless said.
    /// NeuVector's groups of addresses never stood for a pod
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    pod_networks: Vec<IpNet>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(super) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let mut documents = Vec::new();
    for file in &args.files {
        documents.extend(files::documents(file)?);
    }
    let mut settings = Settings::default();
    if !args.pod_networks.is_empty() {
        settings.pod_networks.clone_from(&args.pod_networks);
    }
    let imported = neuvector::import(&documents, &settings).map_err(Failure)?;
    if args.diff {
        return diff(args, &imported).await;
    }
    if !args.dry_run {
        write(&imported, &args.server.open()?).await?;
    }
    let count = |outcome| imported.counts().get(&outcome).copied().unwrap_or(0);
    let refused = count(Outcome::Refused);
    let answer = json!({
        "dryRun": args.dry_run,
        "kept": count(Outcome::Kept),
        "changed": count(Outcome::Changed),
        "refused": refused,
        "notCarried": count(Outcome::NotCarried),
        "report": imported.report,
        "objects": objects(&imported),
    });
    args.output.print(&answer, || table(&imported, &answer))?;
    Ok(output::yes_or_no(refused == 0))
}

/// What the import would change of the verdicts on what was seen.
async fn diff(args: &Args, imported: &Imported) -> ClientResult<ExitCode> {
    fn named<K: Kind>(objects: &[K]) -> Vec<Value> {
        let named = |object: &K| json!({"name": object.meta().name, "spec": json!(object)["spec"]});
        objects.iter().map(named).collect()
    }
    let body = json!({
        "groups": named(&imported.groups),
        "rules": named(&imported.rules),
        "alone": args.alone,
    });
    let route = Route::to(["guard", "rules", "compare"]);
    let answer: Value = args.server.open()?.post(&route, Body::Json(&body)).await?;
    let titles = ["CLIENT", "SERVER", "PORT", "NOW", "RULE", "IMPORTED", "RULE", "BYTES"];
    args.output.print_list(&answer, "differences", &titles, |line| {
        let [client, server] = ["client", "server"].map(|side| endpoint(&line[side]).into());
        let [now, rule, new_rule, bytes] = fields(line, ["now", "rule", "proposedRule", "bytes"]);
        let proposed = match line["proposed"].as_str() {
            Some("violates") => Cell::coloured("violates", Colour::Red),
            word => word.into(),
        };
        [client, server, port(line).into(), now, rule, proposed, new_rule, bytes]
    })?;
    let changes = items(&answer, "changes");
    let compared = answer["compared"].as_u64().unwrap_or_default();
    eprintln!("{compared} conversations were judged by both");
    for change in changes {
        let [now, proposed, count] =
            ["now", "proposed", "conversations"].map(|name| field(change, name));
        eprintln!("{count} are {now} now and {proposed} with what would be imported");
    }
    Ok(output::yes_or_no(changes.iter().all(|change| change["proposed"] != "violates")))
}

fn objects(imported: &Imported) -> Vec<Value> {
    fn all<K: Kind>(objects: &[K]) -> impl Iterator<Item = Value> + '_ {
        objects.iter().map(|object| json!(object))
    }
    let Imported { groups, rules, admission, responses, receivers, exceptions, roots, report: _ } =
        imported;
    let objects = all(groups).chain(all(rules)).chain(all(admission));
    let objects = objects.chain(all(receivers)).chain(all(responses));
    objects.chain(all(exceptions)).chain(all(roots)).collect()
}

fn table(imported: &Imported, answer: &Value) -> String {
    let rows = imported.report.iter().map(|finding| {
        let outcome = match finding.outcome {
            Outcome::Kept => "kept".into(),
            Outcome::Changed => Cell::coloured("changed", Colour::Yellow),
            Outcome::Refused => Cell::coloured("refused", Colour::Red),
            Outcome::NotCarried => "not carried over".into(),
        };
        [finding.what.into(), finding.name.as_str().into(), outcome, finding.why.as_str().into()]
    });
    let written = if answer["dryRun"] == true { "nothing was written" } else { "written" };
    let [kept, changed, refused, not] =
        ["kept", "changed", "refused", "notCarried"].map(|name| answer[name].to_string());
    let table = output::table(["WHAT", "NAME", "OUTCOME", "WHY"], rows);
    format!(
        "{table}\n{kept} kept, {changed} changed, {refused} refused, {not} not carried over; {written}\n"
    )
}

/// Writes groups before the rules that name them, and receivers before the rules that tell them.
async fn write(imported: &Imported, server: &Server) -> ClientResult<()> {
    async fn put<K: Kind>(
        server: &Server,
        route: impl Fn(&str) -> Route,
        objects: &[K],
    ) -> ClientResult<()> {
        for object in objects {
            let route = route(object.meta().name.as_deref().unwrap_or_default());
            server.put(&route, &json!({ "spec": json!(object)["spec"] })).await?;
        }
        Ok(())
    }
    put(server, |name| Route::to(["guard", "groups", name]), &imported.groups).await?;
    put(server, |name| Route::to(["guard", "rules", name]), &imported.rules).await?;
    put(server, |name| Route::to(["admission", "rules", name]), &imported.admission).await?;
    put(server, |name| Route::to(["receivers", name]), &imported.receivers).await?;
    put(server, |name| Route::to(["responses", name]), &imported.responses).await?;
    let exceptions = imported.exceptions.iter().map(|it| json!(it).to_string());
    let roots = imported.roots.iter().map(|it| json!(it).to_string());
    let documents: Vec<_> = exceptions.chain(roots).collect();
    for some in documents.chunks(DOCUMENTS) {
        let text = some.join("\n---\n");
        let _: Value = server.post(&Route::to(["images", "import"]), Body::Yaml(&text)).await?;
    }
    Ok(())
}
