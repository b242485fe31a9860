// Writes src/api/schema.d.ts from api/openapi.json: one TypeScript type for each schema of the API.
import { readFileSync, writeFileSync } from "node:fs";

const openapi = JSON.parse(readFileSync(new URL("../../api/openapi.json", import.meta.url)));
const schemas = openapi.components.schemas;

function type(schema) {
  if (!schema || Object.keys(schema).length === 0) return "unknown";
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    return schemas[name] ? name : "string";
  }
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.oneOf || schema.anyOf) return `(${(schema.oneOf ?? schema.anyOf).map(type).join(" | ")})`;
  if (schema.allOf) return schema.allOf.map(type).join(" & ");
  if (Array.isArray(schema.type)) {
    return schema.type.map((one) => type({ ...schema, type: one })).join(" | ");
  }
  switch (schema.type) {
    case "string":
      return "string";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "array":
      return `Array<${type(schema.items)}>`;
    case "object":
      return object(schema);
    default:
      return schema.properties ? object(schema) : "unknown";
  }
}

function object(schema) {
  if (schema.properties) {
    const required = new Set(schema.required ?? []);
    const fields = Object.entries(schema.properties).map(([name, value]) => {
      const note = value.description ? `  /** ${value.description.replaceAll("*/", "* /").replaceAll("\n", " ")} */\n` : "";
      return `${note}  ${JSON.stringify(name)}${required.has(name) ? "" : "?"}: ${type(value)};`;
    });
    return `{\n${fields.join("\n")}\n}`;
  }
  const values = schema.additionalProperties;
  return values && typeof values === "object" ? `Record<string, ${type(values)}>` : "Record<string, unknown>";
}

const types = Object.entries(schemas).map(([name, schema]) => {
  const note = schema.description ? `/** ${schema.description.replaceAll("*/", "* /").replaceAll("\n", " ")} */\n` : "";
  return `${note}export type ${name} = ${type(schema)};\n`;
});
writeFileSync(
  new URL("../src/api/schema.d.ts", import.meta.url),
  `// Generated from api/openapi.json by scripts/types.mjs.\n\n${types.join("\n")}`,
);
