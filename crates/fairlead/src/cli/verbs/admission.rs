mod files;
mod server;

use std::path::PathBuf;

use admission::{
    Decision, Explained, Facts, Images, Malformed, Operation, Program, Reports, Request, Settings,
    decide, explain, import,
};
use serde_json::{Value, json};

use crate::cli::client::{self, ListFlags};
use crate::cli::files::documents;
use crate::cli::table::Table;
use crate::cli::terminal::Paint;
use crate::output::{Failure, Output, Verdict, yes_or_no};

/// Show what a server admits and why; test, explain and import rules offline
///
/// Offline, rules are AdmissionRule manifests, or a plain list of rules with names. Objects are
/// manifests or whole AdmissionReviews. No cluster is asked, so that owners, claims and roles of
/// service accounts are unknown. What scanners found in images is given with --images.
///
/// Examples:
///   fairlead admission rules
///   fairlead admission audit --outcome denied -w
///   fairlead admission running --namespace shop
///   fairlead admission test --rules rules.yaml --object deployment.yaml
///   fairlead admission explain --rules rules.yaml --object pod.yaml --user alice
///   fairlead admission test --rules rules.yaml --object pod.yaml --images trivy.json exceptions.yaml
///   fairlead admission import nv-admission-rules.yaml > rules.yaml
///
/// Exit codes: 0 admitted or all carried over, 1 denied or something left out, 2 could not do it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Say whether objects would be admitted, and which rule decides
    Test(Case),
    /// Show every rule with every criterion: met, or what was found instead
    Explain(Case),
    /// List the rules of a running server, in their order; exit 1 if one is invalid
    Rules(ListFlags),
    /// Show what a running server decided, the latest first: a line for each owner, image and rule
    Audit(server::Audit),
    /// Show what runs although a rule would refuse or record it now; exit 1 if anything does
    Running(server::Running),
    /// Make AdmissionRules of NeuVector's; what cannot be carried over is said on stderr
    Import {
        /// The export (NvAdmissionControlSecurityRule YAML), or `-` for standard input
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, clap::Args)]
struct Case {
    /// Files with rules, in order
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Files with objects, or `-` for standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    object: Vec<PathBuf>,
    /// Files with scan results of images: `trivy image -f json`, `grype -o json`, CycloneDX, NeuVector's
    /// scan results, reports of trivy-operator or sbomscanner; also VulnerabilityExceptions, OpenVEX and
    /// CSAF. Rules on scan results are refused without them
    #[arg(long, num_args = 1.., value_name = "FILE")]
    images: Vec<PathBuf>,
    /// The user who asks
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
    /// A group of the user; may be repeated
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    /// The mode of deny rules that have none of their own
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// The operation that is asked for
    #[arg(long, value_enum, default_value_t)]
    operation: RequestedOperation,
    /// Spare sidecars of Istio and Linkerd the rules on images, variables and resources. Offline it is
    /// unknown which ones an injector added: those of a Pod count as added, those of a template do not
    #[arg(long)]
    exempt_sidecars: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Monitor,
    #[default]
    Protect,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum RequestedOperation {
    #[default]
    Create,
    Update,
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::Test(case) => test(case),
        Verb::Explain(case) => explain_all(case),
        Verb::Rules(args) => client::run(server::rules(args)),
        Verb::Audit(args) => client::run(server::audit(args)),
        Verb::Running(args) => client::run(server::running(args)),
        Verb::Import { file, output } => import_file(file, *output),
    }
}

/// An object of the case as a request, with its name for people.
struct NamedRequest {
    request: Result<Request, Malformed>,
    called: String,
}

impl Case {
    fn program(&self) -> Result<(Program, Settings), Failure> {
        let settings = Settings {
            exempt_sidecars: self.exempt_sidecars,
            scan_results: !self.images.is_empty(),
            ..Settings::new(self.mode == Mode::Protect)
        };
        let mut rules = Vec::new();
        for file in &self.rules {
            rules.extend(files::rules(file)?);
        }
        for rule in &rules {
            let name = rule.metadata.name.as_deref().unwrap_or_default();
            for (field, warning) in rule.spec.warnings() {
                eprintln!("warning: rule {name:?}: {field}: {warning}");
            }
        }
        let program = Program::compile(&rules, &settings)
            .map_err(|problems| Failure(format!("the rules are not right: {problems}")))?;
        Ok((program, settings))
    }

    fn objects(&self, settings: &Settings) -> Result<Vec<NamedRequest>, Failure> {
        let operation = match self.operation {
            RequestedOperation::Create => Operation::Create,
            RequestedOperation::Update => Operation::Update,
        };
        let mut requests = Vec::new();
        for file in &self.object {
            for object in documents(file)? {
                let is_review =
                    object.get("kind").and_then(Value::as_str) == Some("AdmissionReview");
                let request = if is_review {
                    Request::review(object.to_string().as_bytes(), settings)
                } else if object.get("kind").is_none_or(|kind| !kind.is_string()) {
                    let file = file.display();
                    return Err(Failure(format!("{file}: a document has no kind")));
                } else {
                    Request::object(&object, operation, &self.user, &self.group, settings)
                };
                let called = match &request {
                    Ok(request) => format!("{}/{}", request.kind.to_lowercase(), request.name),
                    Err(_) => file.display().to_string(),
                };
                requests.push(NamedRequest { request, called });
            }
        }
        if requests.is_empty() {
            return Err(Failure("there is no object in the files".to_owned()));
        }
        Ok(requests)
    }
}

/// The facts without a cluster: what the files tell of images. Where sidecars are spared, those of a pod
/// count as injected.
struct Offline {
    images: Option<Images>,
    now: i64,
}

impl Offline {
    fn new(files: &[PathBuf]) -> Result<Self, Failure> {
        let now = jiff::Timestamp::now().as_second();
        let mut reports = Reports::default();
        for file in files {
            for document in documents(file)? {
                let wrong = |why| Failure(format!("{}: {why}", file.display()));
                reports.add(&document, now).map_err(wrong)?;
            }
        }
        let images = (!files.is_empty()).then(|| reports.images());
        Ok(Self { images, now })
    }
}

impl Facts for Offline {
    fn images(&self) -> Option<&Images> {
        self.images.as_ref()
    }

    fn now(&self) -> i64 {
        self.now
    }

    fn injected(&self, _controller: Option<&str>, _container: &str) -> bool {
        true
    }
}

fn test(case: &Case) -> Verdict {
    let (program, settings) = case.program()?;
    let facts = Offline::new(&case.images)?;
    let mut all = true;
    let mut table = Table::new(["OBJECT", "VERDICT", "RULE", "CONTAINER", "WHY"]);
    let mut values = Vec::new();
    for NamedRequest { request, called } in case.objects(&settings)? {
        let decision = request.as_ref().map(|request| decide(&program, request, &facts));
        let allowed = decision.as_ref().is_ok_and(|decision| decision.allowed);
        all &= allowed;
        let verdict = if allowed { "allowed" } else { "denied" };
        match &decision {
            Ok(decision) => {
                let hit = decision.decided.as_ref();
                let why = hit.map(|hit| hit.criteria.join("; "));
                let why = why.or(decision.passed.map(str::to_owned));
                table.row([
                    called.as_str(),
                    verdict,
                    hit.map_or("-", |hit| hit.rule),
                    hit.and_then(|hit| hit.container.as_deref()).unwrap_or("-"),
                    why.as_deref().unwrap_or("no rule decides"),
                ]);
                for hit in &decision.monitored {
                    let container = hit.container.as_deref().unwrap_or("-");
                    let why = hit.criteria.join("; ");
                    table.row([called.as_str(), "monitored", hit.rule, container, &why]);
                }
                for warning in &decision.warnings {
                    eprintln!("warning: {called}: {warning}");
                }
            }
            Err(broken) => table.row([called.as_str(), verdict, "-", "-", &broken.why]),
        }
        values.push(value(&called, &decision));
    }
    let answer = json!({"allowed": all, "objects": values});
    case.output.print(&answer, || table.render(Paint::stdout()))?;
    Ok(yes_or_no(all))
}

fn value(called: &str, decision: &Result<Decision<'_>, &Malformed>) -> Value {
    match decision {
        Ok(decision) => {
            let hit = decision.decided.as_ref();
            let monitored: Vec<_> = decision.monitored.iter().map(|hit| hit.rule).collect();
            json!({"object": called, "allowed": decision.allowed,
                   "rule": hit.map(|hit| hit.rule), "decided": hit, "monitored": monitored,
                   "monitoredHits": decision.monitored, "warnings": decision.warnings,
                   "message": decision.sentence()})
        }
        Err(broken) => json!({"object": called, "allowed": false, "rule": null, "decided": null,
                              "monitored": [], "monitoredHits": [], "warnings": [],
                              "message": broken.why}),
    }
}

fn explain_all(case: &Case) -> Verdict {
    let (program, settings) = case.program()?;
    let facts = Offline::new(&case.images)?;
    let mut all = true;
    let mut text = String::new();
    let mut values = Vec::new();
    for NamedRequest { request, called } in case.objects(&settings)? {
        let decision = request.as_ref().map(|request| decide(&program, request, &facts));
        all &= decision.as_ref().is_ok_and(|decision| decision.allowed);
        let explained = match &request {
            Ok(request) => explain(&program, request, &facts),
            Err(_) => Vec::new(),
        };
        let mut value = value(&called, &decision);
        text.push_str(&format!("{called}: {}\n", value["message"].as_str().unwrap_or_default()));
        if !explained.is_empty() {
            text.push_str(&table_of(&explained));
            text.push_str("\n\n");
        }
        value["rules"] = json!(explained);
        values.push(value);
    }
    let answer = json!({"allowed": all, "objects": values});
    case.output.print(&answer, || text)?;
    Ok(yes_or_no(all))
}

fn table_of(explained: &[Explained<'_>]) -> String {
    let mut table = Table::new(["CONTAINER", "RULE", "ACTION", "RESULT", "CRITERION", "FOUND"]);
    for rule in explained {
        let result = match (rule.selected, rule.matched, rule.decides) {
            (false, ..) => "not selected",
            (true, false, _) => "no match",
            (true, true, true) => "match",
            (true, true, false) => "match (monitor)",
        };
        for (i, criterion) in rule.criteria.iter().enumerate() {
            let first = i == 0;
            let met = if criterion.met { "met" } else { "not met" };
            let written = format!("{met}: {}", criterion.criterion);
            table.row([
                if first { rule.container.as_deref().unwrap_or("-") } else { "" },
                if first { rule.rule } else { "" },
                &if first { rule.action.to_string() } else { String::new() },
                if first { result } else { "" },
                &written,
                &criterion.saw,
            ]);
        }
    }
    table.render(Paint::stdout())
}

fn import_file(file: &std::path::Path, output: Output) -> Verdict {
    let imported =
        import(&documents(file)?).map_err(|why| Failure(format!("{}: {why}", file.display())))?;
    for note in &imported.notes {
        let level = if note.carried { "note" } else { "not carried over" };
        eprintln!("{level}: {}: {}", note.rule, note.why);
    }
    let answer = json!({"rules": imported.rules, "notes": imported.notes});
    output.print_objects(&answer, &imported.rules)?;
    Ok(yes_or_no(imported.notes.iter().all(|note| note.carried)))
}
