//! Which parts of a response speak of the same quota, although none says so.

use super::tally::{Draft, Source};

/// Finds the draft that another one is to be merged into.
pub(super) type Target = fn(&[Draft], &Draft) -> Option<usize>;

/// In this order, so that what has a name finds its like before the rest is given to what is left.
pub(super) const TARGETS: [Target; 6] =
    [first_of_list, named_policy, lone_policy, policy_of_fields, same_numbers, quota_of_lone_reset];

/// The first of a list for a later one with the same numbers: proxies join what several servers say of one quota.
fn first_of_list(drafts: &[Draft], later: &Draft) -> Option<usize> {
    let numbers = |draft: &Draft| (draft.quota.limit, draft.quota.used, draft.quota.remaining);
    let first = later.key.first_of_list()?;
    drafts.iter().position(|draft| draft.key == first && numbers(draft) == numbers(later))
}

/// The policy of the same name.
fn named_policy(drafts: &[Draft], status: &Draft) -> Option<usize> {
    let same = |draft: &Draft| draft.source == Source::Policy && draft.quota.name == status.quota.name;
    if status.source == Source::Status { drafts.iter().position(same) } else { None }
}

/// The only policy for the only status: names are not made to match.
fn lone_policy(drafts: &[Draft], status: &Draft) -> Option<usize> {
    let mut policies = drafts.iter().enumerate().filter(|(_, draft)| draft.source == Source::Policy);
    let (index, policy) = policies.next()?;
    let lone = policies.next().is_none() && policy.is_open_policy();
    let statuses = drafts.iter().filter(|draft| draft.source == Source::Status).count();
    if status.source == Source::Status && lone && statuses == 1 { Some(index) } else { None }
}

/// The policy that the headers without a name report on: the one with their limit, or the only one.
fn policy_of_fields(drafts: &[Draft], fields: &Draft) -> Option<usize> {
    if !fields.is_plain_fields() {
        return None;
    }
    let open =
        |draft: &Draft| draft.key.owner == fields.key.owner && draft.key.name.is_empty() && draft.is_open_policy();
    if fields.quota.limit.is_some() {
        return drafts.iter().position(|draft| open(draft) && draft.quota.limit == fields.quota.limit);
    }
    let only = drafts.iter().filter(|draft| open(draft)).count() == 1;
    if only { drafts.iter().position(open) } else { None }
}

/// The named quota with the same numbers: gateways report their strictest one a second time without its name.
fn same_numbers(drafts: &[Draft], fields: &Draft) -> Option<usize> {
    let numbers = |draft: &Draft| draft.quota.limit.zip(draft.quota.remaining);
    if !fields.is_plain_fields() || numbers(fields).is_none() {
        return None;
    }
    drafts.iter().position(|draft| fields.names_none_but(draft) && numbers(draft) == numbers(fields))
}

/// The quota that a reset without anything else belongs to: the one with the least left.
fn quota_of_lone_reset(drafts: &[Draft], fields: &Draft) -> Option<usize> {
    let quota = &fields.quota;
    let lone = quota.reset.is_some() && quota.limit.is_none() && quota.is_unknown() && quota.used.is_none();
    if !fields.is_plain_fields() || !lone {
        return None;
    }
    let open = drafts.iter().enumerate().filter(|(_, draft)| fields.names_none_but(draft));
    let left = open.filter_map(|(index, draft)| Some((draft.quota.remaining?, index)));
    left.min().map(|(_, index)| index)
}

impl Draft {
    /// The headers without any name of a quota, such as `X-RateLimit-Remaining`.
    fn is_plain_fields(&self) -> bool {
        self.source == Source::Fields && self.key.name.is_empty() && self.key.window.is_none()
    }

    /// Allowed, and nobody said yet what is left of it.
    fn is_open_policy(&self) -> bool {
        let windowed = self.source == Source::Fields && self.key.window.is_some();
        (self.source == Source::Policy || windowed) && self.quota.remaining.is_none()
    }

    /// Whether `other` is a named quota of the same owner whose reset nobody told.
    fn names_none_but(&self, other: &Self) -> bool {
        let named = other.source == Source::Fields && !other.key.name.is_empty();
        named && other.key.owner == self.key.owner && other.quota.reset.is_none()
    }
}
