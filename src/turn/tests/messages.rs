//! What is sent: each result right behind its own assistant message, in call order, wherever in the file it stands.

use proptest::prelude::*;

use super::house::{call, check_pairs};
use crate::provider::Message;
use crate::session::history::History;
use crate::session::record::{
    AssistantRecord, FORMAT, Record, ResultStatus, SessionRecord, ToolResultRecord, TurnSettings, Usage, UserRecord,
};
use crate::turn::images::Images;
use crate::turn::prompt::build_messages;

fn user(turn: u64) -> Record {
    Record::User(UserRecord { turn, at: String::new(), text: "go".to_owned(), settings: TurnSettings::default() })
}

fn assistant(turn: u64, round: u64, ids: &[String]) -> Record {
    Record::Assistant(AssistantRecord {
        turn,
        round,
        at: String::new(),
        provider: "fake".to_owned(),
        model: "model".to_owned(),
        text: String::new(),
        reasoning: String::new(),
        tool_calls: ids.iter().map(|id| call(id, "peek", "{}")).collect(),
        finish_reason: "stop".to_owned(),
        usage: Usage::default(),
        opaque: None,
    })
}

fn result(id: &str) -> Record {
    Record::ToolResult(ToolResultRecord {
        call_id: id.to_owned(),
        at: String::new(),
        status: ResultStatus::Ok,
        code: None,
        content: format!("of {id}"),
        attachments: Vec::new(),
        reason: None,
        auto_decided_by: None,
        duration_ms: 0,
        output_file: None,
        title: None,
        fetched: Vec::new(),
    })
}

proptest! {
    /// Rounds of some calls each, every call answered at any place behind it, a late repair's included.
    #[test]
    fn pairs_are_whole_and_in_call_order(
        rounds in prop::collection::vec((0_usize..5, any::<bool>()), 1..6),
        delays in prop::collection::vec(any::<prop::sample::Index>(), 32),
    ) {
        let session = SessionRecord { format: FORMAT, id: String::new(), at: String::new(), attini: String::new() };
        let mut records = vec![Record::Session(session), user(1)];
        let (mut turn, mut round) = (1, 0);
        let mut open: Vec<String> = Vec::new();
        let mut delays = delays.iter();
        for (number, (calls, new_turn)) in rounds.iter().enumerate() {
            if *new_turn {
                turn += 1;
                round = 0;
                records.push(user(turn));
            }
            round += 1;
            let ids: Vec<String> = (0..*calls).map(|index| format!("c{number}_{index}")).collect();
            records.push(assistant(turn, round, &ids));
            open.extend(ids);
            let now = delays.next().map_or(0, |delay| delay.index(open.len() + 1));
            for _ in 0..now {
                let chosen = delays.next().map_or(0, |delay| delay.index(open.len()));
                records.push(result(&open.swap_remove(chosen)));
            }
        }
        records.extend(open.iter().map(|id| result(id)));
        let mut history = History::default();
        for record in &records {
            history.apply(record).unwrap();
        }
        let messages = build_messages(&history, Images::none());
        prop_assert_eq!(check_pairs(&messages), Ok(()));
        for message in &messages {
            if let Message::Results(results) = message {
                for result in results {
                    prop_assert_eq!(&result.content, &format!("of {}", result.call_id));
                }
            }
        }
        let sent = messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
        prop_assert_eq!(sent, rounds.len());
    }
}
