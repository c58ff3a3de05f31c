//! Bodies in Kubernetes' protobuf form, for the few kinds that `kubectl` sends so (its typed clients prefer it since 1.32).
//!
//! Field numbers are those of the public `generated.proto` files. Fields that are not named here are skipped.

use serde_json::{Map, Value, json};

use super::failure::Failure;

/// What every protobuf body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// How a field is read.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Number,
    List,
    Labels,
    Object(&'static [Field]),
}

type Field = (u64, &'static str, Form);

const METADATA: Form = Form::Object(&[
    (1, "name", Form::Text),
    (2, "generateName", Form::Text),
    (3, "namespace", Form::Text),
    (5, "uid", Form::Text),
    (6, "resourceVersion", Form::Text),
    (11, "labels", Form::Labels),
    (12, "annotations", Form::Labels),
]);

const ATTRIBUTES: Form = Form::Object(&[
    (1, "namespace", Form::Text),
    (2, "verb", Form::Text),
    (3, "group", Form::Text),
    (4, "version", Form::Text),
    (5, "resource", Form::Text),
    (6, "subresource", Form::Text),
    (7, "name", Form::Text),
]);

const PRECONDITIONS: Form =
    Form::Object(&[(1, "uid", Form::Text), (2, "resourceVersion", Form::Text)]);

const DELETE_OPTIONS: Form = Form::Object(&[
    (1, "gracePeriodSeconds", Form::Number),
    (2, "preconditions", PRECONDITIONS),
    (4, "propagationPolicy", Form::Text),
    (5, "dryRun", Form::List),
]);

/// The fields of a kind; `None` for one that is not understood.
fn fields(kind: &str) -> Option<&'static [Field]> {
    Some(match kind {
        "Namespace" | "ServiceAccount" | "SelfSubjectReview" => &[(1, "metadata", METADATA)],
        "Eviction" => &[
            (1, "metadata", METADATA),
            (2, "deleteOptions", DELETE_OPTIONS),
        ],
        "SelfSubjectRulesReview" => &[
            (1, "metadata", METADATA),
            (2, "spec", Form::Object(&[(1, "namespace", Form::Text)])),
        ],
        "SelfSubjectAccessReview" => &[
            (1, "metadata", METADATA),
            (
                2,
                "spec",
                Form::Object(&[
                    (1, "resourceAttributes", ATTRIBUTES),
                    (
                        2,
                        "nonResourceAttributes",
                        Form::Object(&[(1, "path", Form::Text), (2, "verb", Form::Text)]),
                    ),
                ]),
            ),
        ],
        "DeleteOptions" => {
            let Form::Object(fields) = DELETE_OPTIONS else {
                return None;
            };
            fields
        }
        _ => return None,
    })
}

/// Whether a body is in this form.
pub(super) fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// The body as JSON; 415 for a kind that is not understood, 400 for one that is broken.
pub(super) fn decode(body: &[u8]) -> Result<Value, Failure> {
    let broken = || Failure::bad_request("the protobuf body cannot be read");
    let envelope = [(
        1,
        "type",
        Form::Object(&[(1, "apiVersion", Form::Text), (2, "kind", Form::Text)]),
    )];
    let bytes = body.get(MAGIC.len()..).unwrap_or_default();
    let header = read_object(bytes, &envelope).ok_or_else(broken)?;
    let kind = header["type"]["kind"].as_str().unwrap_or_default();
    let known = fields(kind).ok_or_else(Failure::unsupported_media_type)?;
    let raw = Wire(bytes).find_map(|(number, value)| match value {
        Content::Bytes(bytes) if number == 2 => Some(bytes),
        Content::Bytes(_) | Content::Number(_) => None,
    });
    let mut object = read_object(raw.unwrap_or_default(), known).ok_or_else(broken)?;
    object["apiVersion"] = header["type"]["apiVersion"].clone();
    object["kind"] = json!(kind);
    Ok(object)
}

fn read_object(bytes: &[u8], fields: &[Field]) -> Option<Value> {
    let mut object = Map::new();
    for (number, content) in Wire(bytes) {
        let Some((_, name, form)) = fields.iter().find(|(own, _, _)| *own == number) else {
            continue;
        };
        match (form, content) {
            (Form::Number, Content::Number(number)) => {
                object.insert((*name).to_owned(), json!(number));
            }
            (Form::Text, Content::Bytes(text)) if !text.is_empty() => {
                object.insert((*name).to_owned(), json!(std::str::from_utf8(text).ok()?));
            }
            (Form::List, Content::Bytes(text)) => {
                let list = object.entry(*name).or_insert_with(|| json!([]));
                list.as_array_mut()?
                    .push(json!(std::str::from_utf8(text).ok()?));
            }
            (Form::Labels, Content::Bytes(entry)) => {
                let entry =
                    read_object(entry, &[(1, "key", Form::Text), (2, "value", Form::Text)])?;
                let labels = object.entry(*name).or_insert_with(|| json!({}));
                labels[entry["key"].as_str().unwrap_or_default()] =
                    json!(entry["value"].as_str().unwrap_or_default());
            }
            (Form::Object(inner), Content::Bytes(bytes)) => {
                object.insert((*name).to_owned(), read_object(bytes, inner)?);
            }
            _ => {}
        }
    }
    Some(Value::Object(object))
}

/// A field's content on the wire.
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order; ends at the first thing that cannot be read.
struct Wire<'a>(&'a [u8]);

impl<'a> Iterator for Wire<'a> {
    type Item = (u64, Content<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let content = match key & 7 {
            0 => Content::Number(self.varint()?),
            1 => Content::Bytes(self.take(8)?),
            2 => {
                let length = self.varint()?;
                Content::Bytes(self.take(usize::try_from(length).ok()?)?)
            }
            5 => Content::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((key >> 3, content))
    }
}

impl<'a> Wire<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: u8, text: &[u8]) -> Vec<u8> {
        let mut field = vec![(number << 3) | 2, u8::try_from(text.len()).unwrap()];
        field.extend_from_slice(text);
        field
    }

    fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let header = [text(1, version.as_bytes()), text(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), text(1, &header), text(2, raw)].concat()
    }

    #[test]
    fn an_eviction() {
        let options = [
            vec![8, 0x96, 0x01],
            text(2, &text(1, b"u-1")),
            text(5, b"All"),
        ]
        .concat();
        let raw = [
            text(1, &[text(1, b"a"), text(3, b"vms")].concat()),
            text(2, &options),
        ]
        .concat();
        assert_eq!(
            decode(&body("policy/v1", "Eviction", &raw)).unwrap(),
            json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "vms"},
                "deleteOptions": {"gracePeriodSeconds": 150, "preconditions": {"uid": "u-1"}, "dryRun": ["All"]},
            })
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert_eq!(decode(&body("v1", "Pod", &[])).unwrap_err().code, 415);
        assert_eq!(decode(b"k8s\0").unwrap_err().code, 415);
        assert_eq!(decode(b"k8s\0\x0a\x02\x0a\xff").unwrap_err().code, 415);
    }
}
