//! Any signal on the bus, from a program that owns a name or from one that owns none: what `host.signal` sends.

use std::collections::HashMap;

use anyhow::bail;
use zbus::names::WellKnownName;
use zbus::wire::Structure;
use zbus::{Connection, Signature, Variant};

/// A signal with the body of a story.
#[derive(Clone, Copy, Debug)]
pub struct Emission<'a> {
    /// Object path.
    pub path: &'a str,
    /// Interface.
    pub interface: &'a str,
    /// Member.
    pub member: &'a str,
    /// D-Bus signature of the body.
    pub signature: &'a str,
    /// The body, one value for each type.
    pub body: &'a [toml::Value],
}

/// A program on the bus at `address`; with `name` it owns that name. It is there until it is dropped.
pub async fn sender(address: &str, name: Option<&str>) -> anyhow::Result<Connection> {
    let bus = zbus::connection::Builder::address(address).build().await?;
    if let Some(name) = name {
        bus.request_name(WellKnownName::try_from(name)?).await?;
    }
    Ok(bus)
}

/// Sends it, and waits until the bus has it.
pub async fn emit(bus: &Connection, emission: &Emission<'_>) -> anyhow::Result<()> {
    let Emission {
        path,
        interface,
        member,
        ..
    } = *emission;
    match body(emission)? {
        Some(body) => {
            bus.emit_signal(None::<&str>, path, interface, member, &body)
                .await?;
        }
        None => {
            bus.emit_signal(None::<&str>, path, interface, member, &())
                .await?;
        }
    }
    // An answer from the bus comes after the signal has reached it.
    zbus::fdo::DBusProxy::new(bus).await?.get_id().await?;
    Ok(())
}

fn body(emission: &Emission<'_>) -> anyhow::Result<Option<Structure<'static>>> {
    if emission.signature.is_empty() && emission.body.is_empty() {
        return Ok(None);
    }
    // Parentheses make one complete type of several.
    let Ok(signature) = Signature::try_from(format!("({})", emission.signature).as_str()) else {
        bail!("'{}' is no signature", emission.signature);
    };
    let Signature::Structure(types) = &signature else {
        bail!("'{}' is no signature", emission.signature);
    };
    let types: Vec<Signature> = types.iter().cloned().collect();
    if types.len() != emission.body.len() {
        bail!(
            "the body has {} values, its signature '{}' has {} types",
            emission.body.len(),
            emission.signature,
            types.len()
        );
    }
    let mut all = Structure::builder();
    for (signature, value) in types.iter().zip(emission.body) {
        all = all.append_field(variant(signature, value)?);
    }
    Ok(Some(all.build()?))
}

fn variant(signature: &Signature, value: &toml::Value) -> anyhow::Result<Variant<'static>> {
    use toml::Value as T;
    Ok(match (signature.to_string().as_str(), value) {
        ("s", T::String(it)) => Variant::new(it.clone()),
        ("b", T::Boolean(it)) => Variant::new(*it),
        ("y", T::Integer(it)) => Variant::new(u8::try_from(*it)?),
        ("i", T::Integer(it)) => Variant::new(i32::try_from(*it)?),
        ("u", T::Integer(it)) => Variant::new(u32::try_from(*it)?),
        ("x", T::Integer(it)) => Variant::new(*it),
        ("t", T::Integer(it)) => Variant::new(u64::try_from(*it)?),
        ("d", T::Float(it)) => Variant::new(*it),
        ("as", T::Array(list)) => {
            let texts: Option<Vec<String>> =
                list.iter().map(|it| it.as_str().map(Into::into)).collect();
            let Some(texts) = texts else {
                bail!("'as' wants a list of texts");
            };
            Variant::new(texts)
        }
        ("a{sv}", T::Table(table)) => {
            let mut map = HashMap::new();
            for (key, value) in table {
                map.insert(key.clone(), any(value)?);
            }
            Variant::new(map)
        }
        (signature, value) => {
            bail!("a value of type '{signature}' cannot be made from {value}")
        }
    })
}

/// The usual type of a value inside a variant.
fn any(value: &toml::Value) -> anyhow::Result<Variant<'static>> {
    use toml::Value as T;
    Ok(match value {
        T::String(it) => Variant::new(it.clone()),
        T::Boolean(it) => Variant::new(*it),
        T::Integer(it) => Variant::new(u32::try_from(*it)?),
        T::Float(it) => Variant::new(*it),
        T::Datetime(_) | T::Array(_) | T::Table(_) => bail!("{value} is too much for a variant"),
    })
}
