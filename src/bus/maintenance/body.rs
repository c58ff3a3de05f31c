//! What does a signal say? Its arguments as plain values.

use serde_json::{Map, Value};
use zbus::message::Message;
use zbus::wire::Structure;
use zbus::{Signature, Variant};

/// The arguments: variants are unpacked, dictionaries are objects whose keys are texts, a file descriptor is null.
///
/// # Errors
/// A sentence when the bytes do not match their signature.
pub fn read(message: &Message) -> Result<Vec<Value>, String> {
    let body = message.body();
    if *body.signature() == Signature::Unit {
        return Ok(Vec::new());
    }
    let all: Structure<'_> = body
        .deserialize()
        .map_err(|why| format!("its body cannot be read: {why}"))?;
    Ok(all.fields().iter().map(plain).collect())
}

fn plain(value: &Variant<'_>) -> Value {
    match value {
        Variant::U8(it) => (*it).into(),
        Variant::Bool(it) => (*it).into(),
        Variant::I16(it) => (*it).into(),
        Variant::U16(it) => (*it).into(),
        Variant::I32(it) => (*it).into(),
        Variant::U32(it) => (*it).into(),
        Variant::I64(it) => (*it).into(),
        Variant::U64(it) => (*it).into(),
        Variant::F64(it) => (*it).into(),
        Variant::Str(it) => it.as_str().into(),
        Variant::Signature(it) => it.to_string().into(),
        Variant::ObjectPath(it) => it.as_str().into(),
        Variant::Variant(it) => plain(it),
        Variant::Array(it) => it.inner().iter().map(plain).collect(),
        Variant::Structure(it) => it.fields().iter().map(plain).collect(),
        Variant::Dict(it) => {
            let pair = |(key, value)| (text(&plain(key)), plain(value));
            Value::Object(it.iter().map(pair).collect::<Map<_, _>>())
        }
        Variant::Fd(_) => Value::Null,
    }
}

fn text(key: &Value) -> String {
    key.as_str().map_or_else(|| key.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::HashMap;

    fn signal<B>(body: &B) -> Message
    where
        B: serde::Serialize + zbus::DynamicType,
    {
        Message::signal("/a", "b.C", "D")
            .build(body)
            .expect("a message")
    }

    #[test]
    fn bodies_of_every_form_are_read() {
        assert_eq!(read(&signal(&())), Ok(vec![]));
        assert_eq!(read(&signal(&"low")), Ok(vec![json!("low")]));
        assert_eq!(read(&signal(&true)), Ok(vec![json!(true)]));
        let level = HashMap::from([("WarningLevel", Variant::new(4_u32))]);
        let body = ("org.freedesktop.UPower.Device", level, Vec::<String>::new());
        assert_eq!(
            read(&signal(&body)),
            Ok(vec![
                json!("org.freedesktop.UPower.Device"),
                json!({"WarningLevel": 4}),
                json!([])
            ])
        );
        let numbers = HashMap::from([(7_u32, -1_i64)]);
        assert_eq!(read(&signal(&numbers)), Ok(vec![json!({"7": -1})]));
    }
}
