use std::path::PathBuf;
use std::process::ExitCode;

use ipnet::IpNet;
use neuvector::{Imported, Outcome, Settings};
use objects::Kind;
use serde_json::{Value, json};

use crate::cli::client::{ClientResult, Route, Server, ServerFlags};
use crate::cli::files;
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, Output};

/// Import groups, network rules, response rules, admission rules and webhooks of NeuVector
///
/// Files are exports of NeuVector (`/v1/file/group`, `/v1/file/admission`) or its resources as kubectl prints
/// them. What is imported never allows more than NeuVector did: a rule that would is refused, one that can only
/// be stricter is changed, and both are said. The same files import the same again. Exit 1 if something was
/// refused.
///
/// Examples:
///   fairlead guard import groups.yaml admission.yaml --dry-run   what would become what, and why
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

fn objects(imported: &Imported) -> Vec<Value> {
    fn all<K: Kind>(objects: &[K]) -> impl Iterator<Item = Value> + '_ {
        objects.iter().map(|object| json!(object))
    }
    let Imported { groups, rules, admission, responses, receivers, report: _ } = imported;
    let objects = all(groups).chain(all(rules)).chain(all(admission));
    objects.chain(all(receivers)).chain(all(responses)).collect()
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
    put(server, |name| Route::to(["responses", name]), &imported.responses).await
}
