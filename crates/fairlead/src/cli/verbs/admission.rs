pub(super) mod files;
mod watched;

use std::path::PathBuf;
use std::process::ExitCode;

use guard::admission::{
    Decision, Explained, Facts, Malformed, Operation, Program, Request, Settings, decide, explain,
    import,
};
use serde_json::{Value, json};

use crate::cli::client;
use crate::cli::table::Table;
use crate::cli::terminal::Paint;
use crate::output::{self, Failure, Format, NO, Output, Verdict};

/// What may enter a cluster: rules and decisions of a running server; test, explain, import offline
///
/// Offline, rules are AdmissionRule manifests, or a plain list of rules with names. Objects are
/// manifests or whole AdmissionReviews. Nothing is asked of a cluster: what only a cluster knows
/// (owners, claims, roles of service accounts) is unknown.
///
/// Examples:
///   fairlead admission rules
///   fairlead admission audit --outcome denied -w
///   fairlead admission test --rules rules.yaml --object deployment.yaml
///   fairlead admission explain --rules rules.yaml --object pod.yaml --user alice --group devs
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
    /// Would it be admitted, and which rule says so?
    Test(Case),
    /// Every rule and every criterion: met, or what is there instead
    Explain(Case),
    /// The rules of a running server, in the order in which they are decided; exit 1 if one is invalid
    Rules(watched::Rules),
    /// What a running server decided, the latest first: a line for each owner, image and rule
    Audit(watched::Audit),
    /// NeuVector's exported rules as AdmissionRules; what could not be carried over on stderr
    Import {
        /// The export (NvAdmissionControlSecurityRule YAML), or `-` for standard input
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, clap::Args)]
struct Case {
    /// Rules, in order
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Objects, or `-` for standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    object: Vec<PathBuf>,
    /// Who asks
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
    /// A group of the user; may be repeated
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    /// For deny rules that have no mode of their own
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// What is asked for
    #[arg(long, value_enum, default_value_t)]
    operation: Asked,
    /// Spare sidecars of Istio and Linkerd the rules on images, variables and resources. Nobody knows
    /// here which an injector added; so those of a Pod count as added, those of a template do not
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
enum Asked {
    #[default]
    Create,
    Update,
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.verb {
        Verb::Test(case) => test(case),
        Verb::Explain(case) => explain_all(case),
        Verb::Rules(args) => client::verdict(watched::rules(args)),
        Verb::Audit(args) => client::verdict(watched::audit(args)),
        Verb::Import { file, output } => import_file(file, *output),
    }
}

/// An object of the case, and what became of it.
struct Judged {
    request: Result<Request, Malformed>,
    called: String,
}

impl Case {
    fn program(&self) -> Result<(Program, Settings), Failure> {
        let settings = Settings {
            exempt_sidecars: self.exempt_sidecars,
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

    fn objects(&self, settings: &Settings) -> Result<Vec<Judged>, Failure> {
        let operation = match self.operation {
            Asked::Create => Operation::Create,
            Asked::Update => Operation::Update,
        };
        let mut judged = Vec::new();
        for file in &self.object {
            for object in files::documents(file)? {
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
                judged.push(Judged { request, called });
            }
        }
        if judged.is_empty() {
            return Err(Failure("there is no object in the files".to_owned()));
        }
        Ok(judged)
    }
}

/// Nothing is known of a cluster. Where sidecars are spared, those of a pod count as injected.
struct Offline;

impl Facts for Offline {
    fn injected(&self, _controller: Option<&str>, _container: &str) -> bool {
        true
    }
}

fn exit(allowed: bool) -> ExitCode {
    if allowed { ExitCode::SUCCESS } else { ExitCode::from(NO) }
}

fn test(case: &Case) -> Verdict {
    let (program, settings) = case.program()?;
    let mut all = true;
    let mut table = Table::new(["OBJECT", "VERDICT", "RULE", "CONTAINER", "WHY"]);
    let mut values = Vec::new();
    for Judged { request, called } in case.objects(&settings)? {
        let decision = request.as_ref().map(|request| decide(&program, request, &Offline));
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
    Ok(exit(all))
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
    let mut all = true;
    let mut text = String::new();
    let mut values = Vec::new();
    for Judged { request, called } in case.objects(&settings)? {
        let decision = request.as_ref().map(|request| decide(&program, request, &Offline));
        all &= decision.as_ref().is_ok_and(|decision| decision.allowed);
        let explained = match &request {
            Ok(request) => explain(&program, request, &Offline),
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
    Ok(exit(all))
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
    let imported = import(&files::documents(file)?)
        .map_err(|why| Failure(format!("{}: {why}", file.display())))?;
    for note in &imported.notes {
        let level = if note.carried { "note" } else { "not carried over" };
        eprintln!("{level}: {}: {}", note.rule, note.why);
    }
    match output.output {
        Format::Json => {
            let answer = json!({"rules": imported.rules, "notes": imported.notes});
            output::line(&output::json(&answer)?)?;
        }
        // The rules alone, to be applied or tested.
        Format::Table | Format::Yaml => {
            for rule in &imported.rules {
                output::line(&format!("---\n{}", output::yaml(rule)?.trim_end()))?;
            }
        }
    }
    Ok(exit(imported.notes.iter().all(|note| note.carried)))
}
