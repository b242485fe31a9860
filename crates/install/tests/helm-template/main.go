// A renderer of charts for tests. It is not Helm: it is Go's text/template with Sprig's functions and
// the few that Helm adds, put together as Helm does it, so that what Fairlead renders by itself can be
// compared with what Helm's language makes of the same chart.
//
// Reads a list of cases in JSON, writes a list of results in JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"text/template"

	// As Debian packages it: the version 3, at the path without it.
	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type testCase struct {
	Chart       string                 `json:"chart"`
	Name        string                 `json:"name"`
	Namespace   string                 `json:"namespace"`
	Service     string                 `json:"service"`
	APIVersions []string               `json:"apiVersions"`
	Values      map[string]interface{} `json:"values"`
}

type result struct {
	Objects []interface{} `json:"objects,omitempty"`
	Notes   string        `json:"notes,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// files are those of the chart, as `.Files` has them.
type files map[string][]byte

func (f files) Get(name string) string { return string(f[name]) }

func (f files) Glob(pattern string) files {
	found := files{}
	for name, data := range f {
		if ok, err := path.Match(pattern, name); err == nil && ok {
			found[name] = data
		}
	}
	return found
}

type versions []string

func (v versions) Has(version string) bool {
	for _, known := range v {
		if known == version {
			return true
		}
	}
	return false
}

func main() {
	var cases []testCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		fmt.Fprintln(os.Stderr, "helm-template: the cases cannot be read:", err)
		os.Exit(2)
	}
	results := make([]result, 0, len(cases))
	for _, c := range cases {
		r, err := render(c)
		if err != nil {
			r = result{Error: err.Error()}
		}
		results = append(results, r)
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		fmt.Fprintln(os.Stderr, "helm-template:", err)
		os.Exit(2)
	}
}

func render(c testCase) (result, error) {
	all, err := read(c.Chart, "")
	if err != nil {
		return result{}, err
	}
	var chart struct {
		Name       string `json:"name"`
		Version    string `json:"version"`
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(all["Chart.yaml"], &chart); err != nil {
		return result{}, err
	}
	values := map[string]interface{}{}
	if err := yaml.Unmarshal(all["values.yaml"], &values); err != nil {
		return result{}, err
	}
	coalesce(values, c.Values)

	rest, names := files{}, []string{}
	for name, data := range all {
		switch {
		case strings.HasPrefix(name, "templates/"):
			names = append(names, name)
		case name == "Chart.yaml", name == "values.yaml", name == "values.schema.json", name == ".helmignore":
		default:
			rest[name] = data
		}
	}
	sort.Strings(names)

	data := map[string]interface{}{
		"Values":       values,
		"Chart":        map[string]interface{}{"Name": chart.Name, "Version": chart.Version, "AppVersion": chart.AppVersion},
		"Release":      map[string]interface{}{"Name": c.Name, "Namespace": c.Namespace, "Service": c.Service, "IsInstall": true, "IsUpgrade": false, "Revision": 1},
		"Files":        rest,
		"Capabilities": map[string]interface{}{"APIVersions": versions(c.APIVersions)},
	}
	t := template.New("chart").Option("missingkey=zero")
	t.Funcs(functions(t))
	for _, name := range names {
		if _, err := t.New(name).Parse(string(all[name])); err != nil {
			return result{}, err
		}
	}
	r := result{Objects: []interface{}{}}
	for _, name := range names {
		base := path.Base(name)
		if strings.HasPrefix(base, "_") {
			continue
		}
		var out strings.Builder
		if err := t.ExecuteTemplate(&out, name, data); err != nil {
			return result{}, err
		}
		text := strings.ReplaceAll(out.String(), "<no value>", "")
		if base == "NOTES.txt" {
			r.Notes = text
			continue
		}
		objects, err := documents(name, text)
		if err != nil {
			return result{}, err
		}
		r.Objects = append(r.Objects, objects...)
	}
	return r, nil
}

// coalesce puts what a user chose over the chart's defaults; null deletes.
func coalesce(defaults, chosen map[string]interface{}) {
	for key, value := range chosen {
		if value == nil {
			delete(defaults, key)
			continue
		}
		inner, isMap := value.(map[string]interface{})
		old, wasMap := defaults[key].(map[string]interface{})
		if isMap && wasMap {
			coalesce(old, inner)
			continue
		}
		defaults[key] = value
	}
}

// functions are Sprig's without those that Helm takes out, and those that Helm adds.
func functions(t *template.Template) template.FuncMap {
	f := sprig.TxtFuncMap()
	delete(f, "env")
	delete(f, "expandenv")
	f["include"] = func(name string, data interface{}) (string, error) {
		var out strings.Builder
		err := t.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	f["required"] = func(message string, value interface{}) (interface{}, error) {
		if text, ok := value.(string); value == nil || (ok && text == "") {
			return value, errors.New(message)
		}
		return value, nil
	}
	f["toYaml"] = func(value interface{}) string {
		data, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(data), "\n")
	}
	f["lookup"] = func(string, string, string, string) (map[string]interface{}, error) {
		return map[string]interface{}{}, nil
	}
	return f
}

var separator = regexp.MustCompile(`(?:^|\s*\n)---\s*`)

func documents(name, text string) ([]interface{}, error) {
	var objects []interface{}
	for _, document := range separator.Split(text, -1) {
		var object interface{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if object != nil {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// read follows links, as Helm does.
func read(dir, prefix string) (map[string][]byte, error) {
	found := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			inner, err := read(name, prefix+entry.Name()+"/")
			if err != nil {
				return nil, err
			}
			for path, data := range inner {
				found[path] = data
			}
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		found[prefix+entry.Name()] = data
	}
	return found, nil
}
