//! Breadth first, through all that can happen.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::rules::{Rules, Step};
use super::world::World;

/// What holds in a state; says what is wrong otherwise.
pub(super) type Law = fn(&World) -> Result<(), String>;

/// What came of it.
#[derive(Debug)]
pub(super) struct Explored {
    /// How many states there are, as far as was looked.
    pub(super) states: usize,
    /// The shortest way to a state in which a law does not hold, and what is wrong there.
    pub(super) broken: Option<(Vec<Step>, String)>,
}

/// Looks at every state that can be reached, until a law does not hold in one.
pub(super) fn explore(rules: &Rules, laws: &[Law]) -> Explored {
    // By their hashes alone: that two of a million 64 bits are equal is as likely as one in ten millions.
    let mut seen = HashSet::new();
    // How each was reached first: from which other, by which step.
    let mut ways: Vec<Option<(usize, Step)>> = Vec::new();
    let mut to_do = VecDeque::new();
    let mut found = |world: World, way: Option<(usize, Step)>, to_do: &mut VecDeque<_>| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            return None;
        }
        let wrong = laws.iter().find_map(|law| law(&world).err());
        ways.push(way);
        to_do.push_back((world, ways.len() - 1));
        wrong.map(|wrong| (way_to(&ways, ways.len() - 1), wrong))
    };
    let mut broken = found(World::new(rules), None, &mut to_do);
    while let (None, Some((world, at))) = (&broken, to_do.pop_front()) {
        broken = world
            .steps(rules)
            .into_iter()
            .find_map(|step| found(world.after(rules, step), Some((at, step)), &mut to_do));
    }
    Explored { states: seen.len(), broken }
}

fn way_to(ways: &[Option<(usize, Step)>], mut at: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((before, step)) = ways[at] {
        steps.push(step);
        at = before;
    }
    steps.reverse();
    steps
}
