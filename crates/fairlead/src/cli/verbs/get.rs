mod watch;

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::client::across;
use crate::cli::client::{
    Access, ClientResult, ClusterChoice, Object, Route, Server, Target, decode,
};
use crate::cli::listing::{self, ExtraColumns, ResourceList};
use crate::cli::terminal::Paint;
use crate::output::{self, Failure, NO};

/// How many items the server is asked for at once: an answer that large is still quick.
const PAGE: u64 = 500;

/// List resources of one cluster, of several, or of all
///
/// Tables have the columns that kubectl shows. Clusters that do not answer cost their own line on
/// stderr and nothing else.
///
/// Examples:
///   fairlead get pods                       namespace default of the only ready cluster
///   fairlead get deploy -A --all-clusters   everywhere
///   fairlead get nodes --cluster prod-eu,prod-us -o wide
///   fairlead get pod/web-0 -n shop --cluster prod -o yaml
///   fairlead get pods -l app=web -w
///   fairlead get secret/login -n shop -o yaml --reveal
///   fairlead get pods --all-clusters -o json | jq '.items[] | [.cluster, .kind]'
///
/// For scripts, `-o json` and `-o yaml` give {"apiVersion":"v1","kind":"List","items":[…]}, or the
/// object itself for one name in one cluster. With several clusters each item has its "cluster",
/// and "clusters" has an entry for each: {"name","ok","tookMs","problem"?}. With -w there is one line
/// for each event: {"event":"restarted","cluster","items"} or {"event":"applied"|"deleted","cluster",
/// "object"}.
///
/// Exit codes: 0 all answered; 1 not found, or some clusters did not answer; 2 none could be asked.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    object: Object,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Label selector, such as app=web,tier!=db
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Field selector, such as status.phase=Running
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
    /// Go on with every change
    #[arg(short, long)]
    watch: bool,
    /// At most this many of each cluster
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Show the values of the Secret that is named; they are masked otherwise
    #[arg(long)]
    reveal: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

impl Format {
    /// The form in which the server is asked for it.
    fn form(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wide => "wide",
            Self::Json | Self::Yaml | Self::Name => "object",
        }
    }
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    if args.all_namespaces && args.object.parts().1.is_some() {
        return Err(
            Failure("a name is in one namespace; give it with -n instead of -A".into()).into()
        );
    }
    let server = args.target.open()?;
    if args.watch {
        return watch::run(args, server).await;
    }
    match args.target.chosen(&server, Access::Read).await? {
        ClusterChoice::One(cluster) => one(args, &server, &cluster).await,
        clusters => across(args, &server, &clusters).await,
    }
}

impl Args {
    /// The query of a list, of one cluster or across several.
    fn query(&self, route: Route) -> Route {
        // Every kind can be selected by its name, and a list can be a table where an object cannot.
        let name = self.object.parts().1.map(|name| format!("metadata.name={name}"));
        let fields: Vec<&str> =
            self.field_selector.iter().chain(&name).map(String::as_str).collect();
        route
            .maybe("namespace", self.target.namespace_unless(self.all_namespaces))
            .maybe("labels", self.selector.as_deref())
            .maybe("fields", (!fields.is_empty()).then(|| fields.join(",")))
            .with("as", self.output.form())
    }

    fn extra_columns(&self, clusters: bool) -> ExtraColumns {
        let wide = self.output == Format::Wide;
        ExtraColumns { clusters, namespaces: self.all_namespaces, wide }
    }

    fn nothing(&self) -> String {
        let kind = self.object.parts().0;
        if self.all_namespaces {
            format!("no {kind} found")
        } else {
            format!("no {kind} found in namespace {}", self.target.namespace())
        }
    }
}

async fn one(args: &Args, server: &Server, cluster: &str) -> ClientResult<ExitCode> {
    let (kind, name) = args.object.parts();
    let route = Route::to(["clusters", cluster, "resources", kind]);
    if let (Some(name), Format::Json | Format::Yaml | Format::Name) = (name, args.output) {
        let route = route.and(name).with("namespace", args.target.namespace());
        let route = route.maybe("reveal", args.reveal.then_some("true"));
        let object: Value = server.get(&route).await?;
        match args.output {
            Format::Name => output::line(&listing::name(&object, kind))?,
            Format::Yaml => output::line(output::yaml(&object)?.trim_end())?,
            _ => output::line(&output::json(&object)?)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let list = pages(server, &args.query(route), args.limit).await?;
    let more = list.remaining.map_or_else(|| "more".to_owned(), |count| format!("{count} more"));
    let code = show(args, &list, false)?;
    if list.next.is_some() {
        eprintln!("there are {more}; raise --limit to see them");
    }
    Ok(code)
}

/// Every page of a list, or as many as the limit takes.
async fn pages(server: &Server, route: &Route, limit: Option<u64>) -> ClientResult<ResourceList> {
    let mut whole = ResourceList::default();
    loop {
        let count = (whole.items.len() + whole.rows.len()) as u64;
        let left = limit.map_or(PAGE, |limit| limit.saturating_sub(count).min(PAGE));
        if left == 0 {
            return Ok(whole);
        }
        let route = route.clone().with("limit", left).maybe("continue", whole.next.as_deref());
        let page: ResourceList = server.get(&route).await?;
        whole.items.extend(page.items);
        whole.rows.extend(page.rows);
        if whole.columns.is_empty() {
            whole.columns = page.columns;
        }
        whole.remaining = page.remaining;
        whole.next = page.next.filter(|next| !next.is_empty());
        if whole.next.is_none() {
            return Ok(whole);
        }
    }
}

async fn across(args: &Args, server: &Server, clusters: &ClusterChoice) -> ClientResult<ExitCode> {
    let route = args.query(Route::to(["resources", args.object.parts().0]));
    let route = route.maybe("clusters", clusters.list()).maybe("limit", args.limit);
    let list: ResourceList = decode(&across::fan_out(server, &route).await?)?;
    if list.clusters.is_empty() {
        return Err(Failure(
            "there is no cluster to ask; `fairlead clusters list` shows what you may see".into(),
        )
        .into());
    }
    let code = show(args, &list, true)?;
    let missing = across::report_missing(&list.clusters);
    // Whether it is nowhere cannot be said when some did not answer.
    Ok(if list.clusters.iter().all(|cluster| cluster.ok) { code } else { missing })
}

fn show(args: &Args, list: &ResourceList, across: bool) -> ClientResult<ExitCode> {
    let found = !(list.rows.is_empty() && list.items.is_empty());
    match args.output {
        Format::Table | Format::Wide if found => {
            output::line(&list.table(args.extra_columns(across)).render(Paint::stdout()))?;
        }
        Format::Table | Format::Wide => {}
        Format::Json => output::line(&output::json(&document(list, across))?)?,
        Format::Yaml => output::line(output::yaml(&document(list, across))?.trim_end())?,
        Format::Name => {
            for item in &list.items {
                output::line(&name(item, args.object.parts().0, across))?;
            }
        }
    }
    if found || !list.clusters.iter().all(|cluster| cluster.ok) {
        return Ok(ExitCode::SUCCESS);
    }
    if let (kind, Some(name)) = args.object.parts() {
        eprintln!("error: {kind} {name:?} is not there, in namespace {}", args.target.namespace());
        return Ok(ExitCode::from(NO));
    }
    if matches!(args.output, Format::Table | Format::Wide) {
        eprintln!("{}", args.nothing());
    }
    Ok(ExitCode::SUCCESS)
}

/// The document for scripts.
fn document(list: &ResourceList, across: bool) -> Value {
    let mut document = json!({ "apiVersion": "v1", "kind": "List" });
    if across {
        document["items"] = list.items.iter().map(with_cluster).collect();
        document["clusters"] = json!(list.clusters);
    } else {
        document["items"] = json!(list.items);
    }
    document
}

/// An item of a fan-out is the object itself, with its cluster beside `kind`: what scripts do with
/// objects they can go on doing.
fn with_cluster(item: &Value) -> Value {
    let mut object = item["object"].clone();
    if object.is_object() {
        object["cluster"] = item["cluster"].clone();
    }
    object
}

fn name(item: &Value, word: &str, across: bool) -> String {
    if across {
        let cluster = item["cluster"].as_str().unwrap_or("-");
        return format!("{cluster} {}", listing::name(&item["object"], word));
    }
    listing::name(item, word)
}

#[cfg(test)]
mod tests;
