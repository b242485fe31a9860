mod verify;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::client::{self, Body, ClientResult, NamedFlags, Route, ServerFlags};
use crate::cli::files;
use crate::cli::listing::{field, items, joined};
use crate::cli::table::{Cell, Table, moment};
use crate::cli::terminal::{Colour, Paint};
use crate::output::{self, Output, Verdict, yes_or_no};

/// Show what is known of images, and hand in what scanners found in them
///
/// Admission rules on scan results (cveHighCount, imageScanned, modules and others) decide on what is
/// known here: reports that were imported, which count everywhere, and those that trivy-operator writes
/// in a cluster, which count in that cluster. What is not known of an image never helps it in.
///
/// Examples:
///   fairlead images list
///   fairlead images show registry.acme.io/web/cart:v2
///   trivy image -f json registry.acme.io/web/cart:v2 | fairlead images import -
///   fairlead images import grype.json openvex.json exceptions.yaml
///   fairlead images verify registry.acme.io/web/cart@sha256:… --key cosign.pub
///   fairlead images delete trivy-1f0c5a7d2b3e4f5a6b7c
///
/// Exit codes: 0 done or known, 1 not known or not taken, 2 could not do it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List what is known of images, one line for each content
    List(List),
    /// Show what rules find of an image: its vulnerabilities, and which of them are excepted
    Show(Show),
    /// Hand in reports of scanners, VEX documents, signatures, VulnerabilityExceptions, ImageTrustRoots
    Import(Import),
    /// Verify signatures of an image that cosign made: say who signed, or why it does not count
    Verify(Box<verify::Verify>),
    /// Withdraw a report that was handed in, by the name that `import` printed
    Delete(NamedFlags),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only images of which a name contains this
    #[arg(value_name = "TEXT", default_value = "", hide_default_value = true)]
    name: String,
    /// As this cluster knows them: with what its own trivy-operator reports
    #[arg(long, default_value = "local")]
    cluster: String,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The image as a container names it
    image: String,
    /// As this cluster knows it
    #[arg(long, default_value = "local")]
    cluster: String,
    /// With the exceptions that count in this namespace
    #[arg(short, long, default_value = "", hide_default_value = true)]
    namespace: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Import {
    /// Files as scanners write them: `trivy image -f json`, `grype -o json`, CycloneDX, NeuVector's scan
    /// results, reports of trivy-operator or sbomscanner; OpenVEX, CSAF; signatures as cosign writes them;
    /// VulnerabilityExceptions, ImageTrustRoots. `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// The largest file that a server takes.
const LARGEST: u64 = 32 << 20;

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::List(args) => client::run(list(args)),
        Verb::Show(args) => client::run(show(args)),
        Verb::Import(args) => client::run(import(args)),
        Verb::Verify(args) => client::run(verify::run(args)),
        Verb::Delete(args) => client::run(delete(args)),
    }
}

/// A number that stands out if it is more than zero.
fn count(value: &Value, name: &str, colour: Colour) -> Cell {
    let text = field(value, name);
    if value[name].as_u64().is_some_and(|count| count > 0) {
        Cell::coloured(&text, colour)
    } else {
        text.into()
    }
}

fn counts(image: &Value) -> [Cell; 4] {
    [
        count(image, "critical", Colour::Red),
        count(image, "high", Colour::Red),
        count(image, "medium", Colour::Yellow),
        field(image, "low").into(),
    ]
}

fn scanned(image: &Value) -> String {
    image["scanned"].as_str().map_or_else(|| "-".to_owned(), moment)
}

async fn list(args: &List) -> ClientResult<ExitCode> {
    let route = Route::to(["images"])
        .with("cluster", &args.cluster)
        .with("limit", args.limit)
        .maybe("name", (!args.name.is_empty()).then_some(&args.name));
    let answer: Value = args.server.open()?.get(&route).await?;
    let titles = ["IMAGE", "SCANNED", "CRITICAL", "HIGH", "MEDIUM", "LOW", "PACKAGES", "SOURCE"];
    args.output.print_list(&answer, "images", &titles, |image| {
        let name = items(image, "images").first().and_then(Value::as_str).unwrap_or("-");
        let [critical, high, medium, low] = counts(image);
        [
            name.into(),
            scanned(image).into(),
            critical,
            high,
            medium,
            low,
            field(image, "packages").into(),
            joined(image, "sources", ", ").into(),
        ]
    })?;
    let (shown, total) = (items(&answer, "images").len(), answer["total"].as_u64().unwrap_or(0));
    if (shown as u64) < total {
        eprintln!("{shown} of {total}; name a part of the image's name to see others");
    }
    if let Some(left_out) = answer["leftOut"].as_u64().filter(|left_out| *left_out > 0) {
        eprintln!("there was no room for {left_out} reports, the oldest");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: &Show) -> ClientResult<ExitCode> {
    let route = Route::to(["images", "show"])
        .with("image", &args.image)
        .with("cluster", &args.cluster)
        .maybe("namespace", (!args.namespace.is_empty()).then_some(&args.namespace));
    let answer: Value = args.server.open()?.get(&route).await?;
    args.output.print(&answer, || text_of(&answer))?;
    if answer["known"] == false {
        eprintln!(
            "nothing is known of {}; `trivy image -f json {} | fairlead images import -` would tell",
            args.image, args.image
        );
    }
    Ok(yes_or_no(answer["known"] == true))
}

fn text_of(answer: &Value) -> String {
    let mut text = String::new();
    for record in items(answer, "records") {
        let mut line = |name: &str, value: &str| {
            text.push_str(&format!("{name:<12}{value}\n"));
        };
        line("images", &joined(record, "images", ", "));
        line("scanned", &scanned(record));
        line("sources", &joined(record, "sources", ", "));
        line(
            "os",
            record["os"].as_str().map_or("not known", |os| if os.is_empty() { "none" } else { os }),
        );
        let known = |name: &str| {
            if record[name].is_null() { "not known".to_owned() } else { field(record, name) }
        };
        line("packages", &known("packages"));
        line("issues", &known("complianceIssues"));
        let verifiers = if record["verifiers"].is_null() {
            "not known".to_owned()
        } else {
            joined(record, "verifiers", ", ")
        };
        line("signed by", &verifiers);
        if record["countsForAllow"] == false {
            line(
                "",
                "scanned without a registry: counts for rules that refuse, not for those that let in",
            );
        }
        let titles =
            ["SEVERITY", "ID", "PACKAGE", "INSTALLED", "FIXED IN", "SCORE", "PUBLISHED", ""];
        let mut table = Table::new(titles);
        for finding in items(record, "vulnerabilities") {
            let severity = field(finding, "severity");
            let severity = match severity.as_str() {
                "critical" | "high" => Cell::coloured(&severity, Colour::Red),
                "medium" => Cell::coloured(&severity, Colour::Yellow),
                _ => severity.into(),
            };
            let published = field(finding, "published");
            let day = published.split('T').next().unwrap_or_default().to_owned();
            table.row([
                severity,
                field(finding, "id").into(),
                field(finding, "package").into(),
                field(finding, "installed").into(),
                field(finding, "fixed").into(),
                field(finding, "score").into(),
                day.into(),
                if finding["excepted"] == true { "excepted".into() } else { "".into() },
            ]);
        }
        text.push_str(&table.render(Paint::stdout()));
        text.push_str("\n\n");
    }
    text.trim_end().to_owned()
}

async fn import(args: &Import) -> ClientResult<ExitCode> {
    let server = args.server.open_for(Duration::from_secs(60))?;
    let mut all = Vec::new();
    for file in &args.files {
        let text = files::read(file, LARGEST)?;
        let route = Route::to(["images", "import"]);
        let answer: Value = server.post(&route, Body::Yaml(&text)).await?;
        all.extend(items(&answer, "documents").to_vec());
    }
    let taken = all.iter().all(|document| document["written"] == true);
    let answer = json!({"documents": all});
    let titles = ["KIND", "NAME", "IMAGES", "TAKEN"];
    args.output.print_list(&answer, "documents", &titles, |document| {
        let taken = document["why"].as_str().unwrap_or("yes");
        [
            field(document, "kind").into(),
            field(document, "name").into(),
            joined(document, "images", ", ").into(),
            Cell::from(taken),
        ]
    })?;
    Ok(yes_or_no(taken))
}

async fn delete(NamedFlags { name, server }: &NamedFlags) -> ClientResult<ExitCode> {
    server.open()?.delete(&Route::to(["images", "reports", name])).await?;
    Ok(output::done(&format!("report {name} withdrawn"))?)
}
