//! A Helm chart, and the objects that it renders to.

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::Error;
use crate::template::{Root, Templates, Value};
use crate::values::Values;
use crate::values::schema::Schema;

/// Every file of `deploy/chart`, by its path.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/chart_files.rs"));

/// The label that the namespace needs where Pod Security is enforced, because agents use the node's network
/// and directories.
pub const POD_SECURITY_LABEL: (&str, &str) = ("pod-security.kubernetes.io/enforce", "privileged");

/// The label of a namespace that an installation created, and that an uninstall removes.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "fairlead");

/// The files of a chart.
#[derive(Clone, Debug)]
pub struct Chart {
    files: BTreeMap<String, String>,
}

/// A release: its name, its namespace, and the API versions of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub name: String,
    pub namespace: String,
    /// The installer, which becomes the label `app.kubernetes.io/managed-by`: `fairlead`, or `Helm`.
    pub service: String,
    /// The API versions and kinds that templates can query, such as `policy/v1` or
    /// `monitoring.coreos.com/v1/ServiceMonitor`.
    pub api_versions: BTreeSet<String>,
}

impl Default for Release {
    /// The names of the documentation, on a current cluster.
    fn default() -> Self {
        Self {
            name: "fairlead".to_owned(),
            namespace: "fairlead".to_owned(),
            service: "fairlead".to_owned(),
            api_versions: BTreeSet::from(["policy/v1".to_owned(), "v1".to_owned()]),
        }
    }
}

/// The result of rendering a chart.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The objects in the order in which they can be applied.
    pub objects: Vec<Json>,
    /// The notes for the user.
    pub notes: String,
    /// The values, with the defaults.
    pub values: Json,
}

/// The fields of Chart.yaml that are used.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    name: String,
    version: String,
    app_version: String,
}

impl Chart {
    /// The chart of this version.
    #[must_use]
    pub fn embedded() -> Self {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self { files: FILES.iter().map(own).collect() }
    }

    /// Makes a chart of its files: `Chart.yaml`, `values.yaml`, `values.schema.json`, `templates/…`.
    #[must_use]
    pub fn from_files(files: BTreeMap<String, String>) -> Self {
        Self { files }
    }

    /// The files by their paths.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// The chart's own values, with their comments.
    ///
    /// # Errors
    /// When the chart has none.
    pub fn default_values(&self) -> Result<&str, Error> {
        self.file("values.yaml")
    }

    /// The version in Chart.yaml.
    ///
    /// # Errors
    /// When Chart.yaml cannot be read.
    pub fn version(&self) -> Result<String, Error> {
        Ok(self.about()?.version)
    }

    /// Merges `values` over the defaults, and checks the result by the schema.
    ///
    /// # Errors
    /// [`Error::Values`] with everything that the schema does not allow.
    pub fn values(&self, values: &Values) -> Result<Map<String, Json>, Error> {
        let all = values.over(yaml("values.yaml", self.file("values.yaml")?)?);
        let schema: Schema = serde_json::from_str(self.file("values.schema.json")?)
            .map_err(|error| wrong("values.schema.json", error.to_string()))?;
        let all = Json::Object(all);
        let problems = schema.check(&all);
        match all {
            Json::Object(all) if problems.is_empty() => Ok(all),
            _ => Err(Error::Values(problems)),
        }
    }

    /// Renders the objects of these values.
    ///
    /// # Errors
    /// When the values are not allowed, or the chart has a mistake.
    pub fn render(&self, release: &Release, values: &Values) -> Result<Rendered, Error> {
        let values = Json::Object(self.values(values)?);
        let mut templates = Templates::default();
        let is_template = |path: &str| path.starts_with("templates/");
        for (path, source) in self.files.iter().filter(|(path, _)| is_template(path)) {
            templates.add(path, source)?;
        }
        // As in Helm, templates and the files that describe the chart are not in `.Files`.
        let described = ["Chart.yaml", "values.yaml", "values.schema.json", ".helmignore"];
        let mut files = self.files.clone();
        files.retain(|path, _| !is_template(path) && !described.contains(&path.as_str()));
        let root = Root {
            data: root(&self.about()?, release, &values),
            files: &files,
            api_versions: &release.api_versions,
        };

        let mut objects = Vec::new();
        for path in self.files.keys().filter(|path| is_template(path) && path.ends_with(".yaml")) {
            let text = templates.render(path, &root)?;
            objects.extend(documents(path, &text)?);
        }
        order::sort(&mut objects);
        let notes = if self.files.contains_key("templates/NOTES.txt") {
            templates.render("templates/NOTES.txt", &root)?
        } else {
            String::new()
        };
        Ok(Rendered { objects, notes, values })
    }

    fn file(&self, path: &str) -> Result<&str, Error> {
        let text = self.files.get(path).map(String::as_str);
        text.ok_or_else(|| wrong(path, "the chart lacks this file".to_owned()))
    }

    fn about(&self) -> Result<About, Error> {
        let text = self.file("Chart.yaml")?;
        serde_saphyr::from_str(text).map_err(|error| wrong("Chart.yaml", error.to_string()))
    }
}

/// The namespace of a release. Helm creates its own (`--create-namespace`), so that the chart has none.
#[must_use]
pub fn namespace(release: &Release) -> Json {
    let (label, value) = POD_SECURITY_LABEL;
    let (part_of, ours) = PART_OF;
    let name = &release.namespace;
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            // Servers from 1.21 on set it themselves. The webhook exempts our own namespace by it.
            "labels": {part_of: ours, label: value, "kubernetes.io/metadata.name": name},
        },
    })
}

fn root(about: &About, release: &Release, values: &Json) -> Value {
    let builtin =
        |pairs: Vec<(&'static str, Value)>| Value::Builtin(Rc::new(pairs.into_iter().collect()));
    let text = |text: &str| Value::text(text);
    builtin(vec![
        ("Values", Value::from(values)),
        (
            "Release",
            builtin(vec![
                ("Name", text(&release.name)),
                ("Namespace", text(&release.namespace)),
                ("Service", text(&release.service)),
            ]),
        ),
        (
            "Chart",
            builtin(vec![
                ("Name", text(&about.name)),
                ("Version", text(&about.version)),
                ("AppVersion", text(&about.app_version)),
            ]),
        ),
        ("Files", Value::Files),
        ("Capabilities", builtin(vec![("APIVersions", Value::ApiVersions)])),
    ])
}

/// Parses the objects in the output of one template.
fn documents(path: &str, text: &str) -> Result<Vec<Json>, Error> {
    let all: Vec<Json> = serde_saphyr::from_multiple(text)
        .map_err(|error| wrong(path, format!("it does not render to YAML: {error}")))?;
    let mut objects = Vec::new();
    for object in all.into_iter().filter(|object| !object.is_null()) {
        let named = object["apiVersion"].is_string()
            && object["kind"].is_string()
            && object["metadata"]["name"].is_string();
        if !named {
            return Err(wrong(
                path,
                "it renders to something without apiVersion, kind and name".to_owned(),
            ));
        }
        objects.push(object);
    }
    Ok(objects)
}

fn yaml(file: &str, text: &str) -> Result<Map<String, Json>, Error> {
    serde_saphyr::from_str(text).map_err(|error| wrong(file, error.to_string()))
}

fn wrong(file: &str, message: String) -> Error {
    Error::Yaml { file: file.to_owned(), message }
}

#[cfg(test)]
mod tests;
