//! A window that fills: the headers of its queue's log, page by page, until one closes it.
//!
//! Owns: how many queues look at a page at a time.
//! Leaves to others: when it closes (`plan`), what is waited for between two pages (`worker`).
//! Upholds: `memory-bounded`.

use crate::context::{Context, Stop};
use crate::host::{Place, ScanFrom, TimelinePage, blocking};
use crate::names::NameLengths;
use crate::plan::{Planner, weight};
use crate::window::Window;
use queen_core::{QueueId, Stamp};

/// Headers asked for at a time: half a MiB, with the names of their partitions.
const PAGE_RUNS: usize = 4096;
/// Queues that look at a page at a time; the others wait.
pub const PAGES_AT_ONCE: usize = 8;

/// What a page was, when its runs have been looked at.
#[derive(Clone, Copy, Debug)]
pub struct PageRead {
    /// The window that it closed.
    pub closed: Option<Window>,
    /// Where the next one starts.
    pub next: Place,
    /// It reached the end of the log.
    pub end: bool,
    /// As in [`TimelinePage::through`].
    pub through: Stamp,
}

/// The window.
pub struct Filling {
    queue: QueueId,
    /// When it closes.
    pub planner: Planner,
    names: NameLengths,
}

impl Filling {
    /// A window of a queue, without records yet.
    pub fn new(context: &Context, queue: QueueId, end_before: Option<Stamp>) -> Filling {
        let planner = Planner::new(context.rule(), queue, end_before);
        Filling { queue, planner, names: NameLengths::new(&context.filling) }
    }

    /// Takes the next page. After one that closes the window it is of no use any more.
    pub async fn page(&mut self, context: &Context, from: ScanFrom) -> Result<PageRead, Stop> {
        // They are never closed.
        let _place = context.pages.acquire().await;
        let (host, queue) = (context.host.clone(), self.queue);
        let page = blocking(&*context.host, move || host.timeline(queue, from, PAGE_RUNS)).await?;
        let lengths = self.names.of(context, queue, &page).await?;
        let TimelinePage { runs, next, end, through } = page;
        let mut runs = runs.iter().zip(lengths);
        let closed =
            runs.find_map(|(run, name_bytes)| self.planner.add(run, weight(run, name_bytes)));
        let closed = closed.map(|window| self.names.shaped(window));
        Ok(PageRead { closed, next, end, through })
    }

    /// Closes it by age or boundary: [`Planner::close_through`].
    pub fn close_through(&mut self, through: Stamp) -> Option<Window> {
        self.planner.close_through(through).map(|window| self.names.shaped(window))
    }
}
