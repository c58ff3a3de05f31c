//! What of an answer counts?

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::names::Names;
use super::side::Reply;
use super::table::Compare;

/// An answer, normalised: the fields that are compared, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// `code`, `reason`, `message`, `details`, `retry-after`, `body`.
    pub fields: BTreeMap<&'static str, Value>,
}

impl Answer {
    /// Reads an answer.
    pub fn read(reply: &Reply, compare: Compare, names: &Names) -> Self {
        let mut answer = Self::default();
        answer.put("code", json!(reply.code));
        if let Some(after) = reply.headers.get(http::header::RETRY_AFTER) {
            answer.put("retry-after", json!(after.to_str().unwrap_or_default()));
        }
        let body = reply.json();
        match compare {
            Compare::Code if reply.code < 400 => return answer,
            Compare::Events if reply.code < 400 => {
                answer.put("body", events(&reply.body, names));
                return answer;
            }
            Compare::Status
            | Compare::Items
            | Compare::Events
            | Compare::Table
            | Compare::Object
            | Compare::Code => {}
        }
        if body["kind"] == "Status" {
            answer.put_status(&body, names);
        } else if body.is_null() {
            let text = String::from_utf8_lossy(&reply.body);
            answer.put("body", json!(names.text(text.trim_end())));
        } else {
            answer.put("body", of_object(&body, compare, names));
        }
        answer
    }

    /// An answer that never came.
    pub fn none(why: &str) -> Self {
        let mut answer = Self::default();
        answer.put("code", json!(why));
        answer
    }

    fn put(&mut self, field: &'static str, value: Value) {
        self.fields.insert(field, value);
    }

    fn put_status(&mut self, status: &Value, names: &Names) {
        for field in ["reason", "message", "details"] {
            if !status[field].is_null() {
                self.put(field, names.value(&status[field]));
            }
        }
        self.put("body", json!({"status": status["status"], "code": status["code"], "metadata": status["metadata"]}));
    }

    /// The status code, as text.
    pub fn code(&self) -> String {
        match self.fields.get("code") {
            Some(Value::String(why)) => why.clone(),
            Some(code) => code.to_string(),
            None => String::new(),
        }
    }
}

fn of_object(body: &Value, compare: Compare, names: &Names) -> Value {
    match compare {
        Compare::Object => names.value(body),
        Compare::Items => items(body, names),
        Compare::Table => table(body, names),
        Compare::Status | Compare::Events | Compare::Code => {
            json!({"kind": body["kind"], "apiVersion": body["apiVersion"]})
        }
    }
}

fn items(body: &Value, names: &Names) -> Value {
    let list = body["items"].as_array();
    let mut found: Vec<String> = list
        .into_iter()
        .flatten()
        .map(|item| names.text(item["metadata"]["name"].as_str().unwrap_or_default()))
        .collect();
    found.sort();
    let continues = body["metadata"]["continue"]
        .as_str()
        .is_some_and(|token| !token.is_empty());
    json!({
        "kind": body["kind"], "items": found, "goes on": continues,
        "remain": body["metadata"]["remainingItemCount"],
        "has revision": body["metadata"]["resourceVersion"].is_string(),
    })
}

/// Columns without their long descriptions, cells without ages.
fn table(body: &Value, names: &Names) -> Value {
    let columns: Vec<Value> = body["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|column| {
            json!([
                column["name"],
                column["type"],
                column["format"],
                column["priority"]
            ])
        })
        .collect();
    let age = columns.iter().position(|column| column[0] == "Age");
    let rows: Vec<Value> = body["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            let mut cells = names.value(&row["cells"]);
            if let Some(cell) = age.and_then(|index| cells.get_mut(index)) {
                *cell = json!("<age>");
            }
            json!([cells, row["object"]["kind"]])
        })
        .collect();
    json!({"kind": body["kind"], "apiVersion": body["apiVersion"], "columns": columns, "rows": rows})
}

/// Type, kind and name of each event; a Status wholly; of a bookmark whether it ends the initial events.
fn events(body: &[u8], names: &Names) -> Value {
    let lines = body.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .map(|event| {
            let object = &event["object"];
            match event["type"].as_str() {
                Some("ERROR") => json!(["ERROR", names.value(object)]),
                Some("BOOKMARK") => {
                    let annotations = names.value(&object["metadata"]["annotations"]);
                    json!([
                        "BOOKMARK",
                        object["kind"],
                        object["apiVersion"],
                        annotations
                    ])
                }
                kind => {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    json!([kind, object["kind"], names.text(name)])
                }
            }
        })
        .collect()
}
