//! What is the same on both sides but for its name, its time or its number?

use serde_json::{Map, Value};

/// Names made by a server that both sides tell as a prefix and five letters.
const GENERATED: [&str; 6] = [
    "generated-",
    "virt-launcher-",
    "kubevirt-evacuation-",
    "kubevirt-disruption-budget-",
    "kubevirt-migrate-vm-",
    "kubevirt-workload-update-",
];
/// Where virt-api is, in the words of either side.
const VIRT_API: [&str; 3] = ["127.0.0.1:", "10.96.0.20:", "virt-api.kubevirt.svc:"];
/// Fields that every write changes.
const VOLATILE: [&str; 5] = [
    "resourceVersion",
    "uid",
    "managedFields",
    "continue",
    "selfLink",
];

/// What names mean.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Name and token, the longest name first.
    known: Vec<(String, String)>,
}

impl Names {
    /// From now on `real` is called `<token>`.
    pub fn learn(&mut self, real: &str, token: &str) {
        if real.len() < 2 || self.known.iter().any(|(known, _)| known == real) {
            return;
        }
        self.known.push((real.to_owned(), format!("<{token}>")));
        self.known
            .sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    /// A text with all names, ids, addresses and long numbers replaced.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if !is_word(first) {
                out.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
            let end = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            out.push_str(&self.word(word));
            rest = after;
        }
        out
    }

    fn word(&self, word: &str) -> String {
        for (name, token) in &self.known {
            if word == name {
                return token.clone();
            }
        }
        for (name, token) in &self.known {
            // system:node:n1, kubelet.n1
            if let Some(before) = word.strip_suffix(name.as_str())
                && before.ends_with([':', '.', '='])
            {
                return format!("{before}{token}");
            }
        }
        if is_time(word) {
            return "<time>".to_owned();
        }
        if word.split('.').count() == 4 && word.split('.').all(|part| part.parse::<u8>().is_ok()) {
            return "<ip>".to_owned();
        }
        if is_uid(word) {
            return "<uid>".to_owned();
        }
        if VIRT_API.iter().any(|place| word.starts_with(place)) {
            return "<virt-api>".to_owned();
        }
        if word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_digit()) {
            return "<n>".to_owned();
        }
        let generated = GENERATED.iter().any(|prefix| word.starts_with(prefix));
        match word.rsplit_once('-') {
            Some((stem, end)) if generated && end.len() == 5 => format!("{stem}-#"),
            _ => word.to_owned(),
        }
    }

    /// A value in which every text is replaced and what every write changes is left out.
    ///
    /// The keys of `activePods` are uids, so only the nodes are kept.
    pub fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(list) => list.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        fields
            .iter()
            .filter(|(key, _)| !VOLATILE.contains(&key.as_str()))
            .map(|(key, value)| (self.text(key), self.field(key, value)))
            .collect()
    }

    fn field(&self, key: &str, value: &Value) -> Value {
        let time = ["Time", "Timestamp", "timestamp", "At"]
            .iter()
            .any(|end| key.ends_with(end));
        if time && value.is_string() {
            return Value::String("<time>".to_owned());
        }
        if key == "activePods"
            && let Value::Object(pods) = value
        {
            let mut nodes: Vec<String> = pods
                .values()
                .map(|node| self.text(node.as_str().unwrap_or_default()))
                .collect();
            nodes.sort();
            return Value::String(nodes.join(" "));
        }
        self.value(value)
    }
}

fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || "-._:".contains(char)
}

/// `2026-01-01T00:00:00Z`, with or without a fraction.
fn is_time(word: &str) -> bool {
    word.len() >= 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T' && word.starts_with("20")
}

fn is_uid(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts
            .iter()
            .all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.learn("n1", "here");
        names.learn("n2", "there");
        names.learn("virt-launcher-a-x7k2p", "pod.a");
        names
    }

    #[test]
    fn texts() {
        let told = |text: &str| names().text(text);
        assert_eq!(
            told("node 'n1' cannot read 'n2'"),
            "node '<here>' cannot read '<there>'"
        );
        assert_eq!(
            told("User \"system:node:n1\" cannot"),
            "User \"system:node:<here>\" cannot"
        );
        assert_eq!(told("pods \"virt-launcher-a-x7k2p\""), "pods \"<pod.a>\"");
        assert_eq!(told("virt-launcher-b-zzzzz"), "virt-launcher-b-#");
        assert_eq!(
            told("needs 1 healthy pods and has 12 currently"),
            "needs 1 healthy pods and has <n> currently"
        );
        assert_eq!(told("(0b7e5a2c-1111-2222-3333-444455556666)"), "(<uid>)");
        assert_eq!(
            told(
                "Post \"https://127.0.0.1:21743/x?timeout=10s\": dial tcp 127.0.0.1:21743: connect"
            ),
            "Post \"https://<virt-api>/x?timeout=10s\": dial tcp <virt-api> connect"
        );
    }

    #[test]
    fn objects() {
        let object = json!({"metadata": {"uid": "x", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n1"}});
        assert_eq!(
            names().value(&object),
            json!({"metadata": {"creationTimestamp": "<time>"}, "spec": {"nodeName": "<here>"}})
        );
    }
}
