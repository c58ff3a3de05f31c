//! What an eviction answer means (design section 4): one table, no side effects.

/// An HTTP answer as it came: enough to judge it, whatever its body was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub code: u16,
    /// `Status.reason`, empty when absent (webhook denials have none).
    pub reason: String,
    /// `Status.message`, or the text body where the answer is no Status object.
    pub message: String,
    /// `details.causes[]` as (reason, message).
    pub causes: Vec<(String, String)>,
    /// Header `Retry-After` or `details.retryAfterSeconds`, in seconds.
    pub retry_after: Option<u32>,
}

/// What an eviction answer means. One row of the table of design section 4 each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 201: the pod is deleted, the guest is shut down.
    Granted,
    /// 429 `Eviction triggered evacuation of VMI`: KubeVirt has marked the VM for this very request.
    Marked,
    /// 429 `Evacuation in progress`: it was marked before.
    InProgress,
    /// 429 `Eviction request for target Pod`: the VM is not active in this pod. It is an inbound migration,
    /// or the left-over source pod of a finished one.
    NotTheActivePod,
    /// 429 `… is configured with an eviction strategy but is not live-migratable`.
    NotMigratable,
    /// 429 `cannot evict hotplug pod`.
    HotplugPod,
    /// 429 `kubevirt failed getting the vmi: … not found`: the VMI is gone, the pod is what is left.
    VmiGone,
    /// 429 `kubevirt failed …` otherwise: KubeVirt could not do its part, it may work the next time.
    KubeVirtFailed(String),
    /// 429 with cause `DisruptionBudget`.
    Budget {
        /// Name of the budget, as far as the cause tells it.
        name: String,
        /// The cause's sentence: what it needs and has.
        says: String,
    },
    /// 500 `This pod has more than one PodDisruptionBudget`.
    SeveralBudgets,
    /// 429 otherwise: the API server is overloaded.
    Throttled,
    /// 500 `failed calling webhook`: virt-api is down or slow. The mark may have been written all the same.
    WebhookDown,
    /// 403 with cause `NamespaceTerminating`.
    NamespaceTerminating,
    /// 404, 409 on the UID, or 403 because the pod is not on this node: not our pod any more.
    Gone,
    /// 401.
    Unauthorized,
    /// 403 otherwise: a right is missing.
    Denied(String),
    /// Anything else, taken for transient.
    Unexpected(String),
}

/// Judges an answer. Sources: `pod-eviction-admitter.go` (texts), the eviction REST handler of the API server
/// (causes), node authorizer and NodeRestriction (403 texts); all seen on real servers.
pub fn judge(reply: &Reply) -> Answer {
    let text = reply.message.as_str();
    let has = |part: &str| text.contains(part);
    let cause = |reason: &str| reply.causes.iter().find(|(r, _)| r == reason);
    match reply.code {
        200 | 201 => Answer::Granted,
        429 if has("Evacuation in progress") => Answer::InProgress,
        429 if has("Eviction triggered evacuation of VMI") => Answer::Marked,
        429 if has("Eviction request for target Pod") => Answer::NotTheActivePod,
        429 if has("not live-migratable") => Answer::NotMigratable,
        429 if has("cannot evict hotplug pod") => Answer::HotplugPod,
        429 if has("kubevirt failed getting the vmi") && has("not found") => Answer::VmiGone,
        429 if has("kubevirt failed") => Answer::KubeVirtFailed(text.into()),
        429 => match cause("DisruptionBudget") {
            Some((_, says)) => Answer::Budget {
                name: budget_name(says),
                says: says.clone(),
            },
            None if has("violate the pod's disruption budget") => Answer::Budget {
                name: String::new(),
                says: text.into(),
            },
            None => Answer::Throttled,
        },
        500 if has("more than one PodDisruptionBudget") => Answer::SeveralBudgets,
        500 if has("failed calling webhook") => Answer::WebhookDown,
        401 => Answer::Unauthorized,
        403 if cause("NamespaceTerminating").is_some() => Answer::NamespaceTerminating,
        403 if has("can only evict pods with spec.nodeName set to itself") => Answer::Gone,
        403 => Answer::Denied(text.into()),
        404 | 409 => Answer::Gone,
        code => Answer::Unexpected(format!("HTTP {code}: {text}")),
    }
}

/// What the answer to the deletion of a pod means: there are no webhooks and no budgets in its way.
pub fn judge_delete(reply: &Reply) -> Answer {
    match reply.code {
        200..=202 => Answer::Granted,
        401 => Answer::Unauthorized,
        // Other rights than for evictions: NodeRestriction answers so to a pod of another node.
        403 if reply.message.contains("spec.nodeName set to itself") => Answer::Gone,
        403 => Answer::Denied(reply.message.clone()),
        404 | 409 => Answer::Gone,
        429 => Answer::Throttled,
        code => Answer::Unexpected(format!("HTTP {code}: {}", reply.message)),
    }
}

/// `The disruption budget NAME needs …` and `The disruption budget NAME is still being processed …`.
fn budget_name(says: &str) -> String {
    let rest = says
        .strip_prefix("The disruption budget ")
        .unwrap_or_default();
    rest.split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

impl Answer {
    /// How long to wait before the same question makes sense again.
    pub fn pause(&self) -> Pause {
        match self {
            Self::KubeVirtFailed(_)
            | Self::WebhookDown
            | Self::Unexpected(_)
            | Self::Unauthorized => Pause::Transient,
            Self::Budget { .. }
            | Self::SeveralBudgets
            | Self::Throttled
            | Self::Denied(_)
            | Self::NotMigratable
            | Self::InProgress
            | Self::NotTheActivePod
            | Self::VmiGone
            | Self::NamespaceTerminating
            | Self::HotplugPod => Pause::Refused,
            Self::Gone => Pause::AskAgain,
            Self::Granted | Self::Marked => Pause::None,
        }
    }
}

/// Kinds of pause; the lengths are in [`super::policy::Timing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// No pause: nothing more is to be asked.
    None,
    /// `retry_first` doubling to `retry_most`.
    Transient,
    /// `refused_first` doubling to `refused_most`.
    Refused,
    /// `ask_again`.
    AskAgain,
}

#[cfg(test)]
mod tests {
    use super::*;

    const WH: &str =
        "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: ";

    fn reply(code: u16, message: &str) -> Reply {
        Reply {
            code,
            message: message.into(),
            ..Reply::default()
        }
    }

    fn wh(text: &str) -> Answer {
        judge(&reply(429, &format!("{WH}{text}")))
    }

    #[test]
    fn every_row_of_the_table() {
        assert_eq!(judge(&reply(201, "")), Answer::Granted);
        assert_eq!(
            wh("Eviction triggered evacuation of VMI \"ev/lm\""),
            Answer::Marked
        );
        assert_eq!(
            wh("Evacuation in progress: Eviction triggered evacuation of VMI \"ev/s\""),
            Answer::InProgress
        );
        assert_eq!(
            wh("Eviction request for target Pod"),
            Answer::NotTheActivePod
        );
        let not = "VMI lmno is configured with an eviction strategy but is not live-migratable";
        assert_eq!(wh(not), Answer::NotMigratable);
        let gone = "kubevirt failed getting the vmi: virtualmachineinstances.kubevirt.io \"gone\" not found";
        assert_eq!(wh(gone), Answer::VmiGone);
        assert!(matches!(
            wh("kubevirt failed marking the vmi for eviction: conflict"),
            Answer::KubeVirtFailed(_)
        ));
        let hp = "cannot evict hotplug pod: hp-volume-abcde associated with running vmi: hot in namespace ev";
        assert_eq!(wh(hp), Answer::HotplugPod);
        assert_eq!(
            judge(&reply(429, "too many requests, please try again later")),
            Answer::Throttled
        );
        let many = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        assert_eq!(judge(&reply(500, many)), Answer::SeveralBudgets);
        let down = "Internal error occurred: failed calling webhook \"virt-launcher-eviction-interceptor.kubevirt.io\": …";
        assert_eq!(judge(&reply(500, down)), Answer::WebhookDown);
        assert_eq!(judge(&reply(404, "pods \"x\" not found")), Answer::Gone);
        assert_eq!(
            judge(&reply(
                409,
                "the UID in the precondition (a) does not match"
            )),
            Answer::Gone
        );
        let other =
            "pods \"x\" is forbidden: node n1 can only evict pods with spec.nodeName set to itself";
        assert_eq!(judge(&reply(403, other)), Answer::Gone);
        assert!(matches!(
            judge(&reply(403, "cannot create resource")),
            Answer::Denied(_)
        ));
        assert_eq!(judge(&reply(401, "Unauthorized")), Answer::Unauthorized);
        assert!(matches!(judge(&reply(503, "x")), Answer::Unexpected(_)));
    }

    #[test]
    fn answers_to_a_deletion() {
        let cases = [
            (200, "", Answer::Granted),
            (202, "", Answer::Granted),
            (404, "not found", Answer::Gone),
            (409, "the UID in the precondition", Answer::Gone),
            (
                403,
                "node \"n1\" can only delete pods with spec.nodeName set to itself",
                Answer::Gone,
            ),
            (403, "forbidden", Answer::Denied("forbidden".into())),
            (429, "later", Answer::Throttled),
            (401, "", Answer::Unauthorized),
        ];
        for (code, text, wanted) in cases {
            assert_eq!(judge_delete(&reply(code, text)), wanted);
        }
        assert!(matches!(
            judge_delete(&reply(503, "x")),
            Answer::Unexpected(_)
        ));
    }

    #[test]
    fn causes_decide() {
        let mut budget = reply(
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
        );
        budget.causes = vec![(
            "DisruptionBudget".into(),
            "The disruption budget b3 needs 3 healthy pods and has 3 currently".into(),
        )];
        let Answer::Budget { name, says } = judge(&budget) else {
            panic!("not a budget")
        };
        assert_eq!((name.as_str(), says.contains("needs 3")), ("b3", true));
        let mut term = reply(
            403,
            "pods \"x\" is forbidden: unable to create new content in namespace term because it is being terminated",
        );
        term.causes = vec![("NamespaceTerminating".into(), String::new())];
        assert_eq!(judge(&term), Answer::NamespaceTerminating);
    }
}
