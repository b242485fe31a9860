use super::*;

/// A query or an answer, never both. Names are short and lowercase, and no more addresses than records.
pub fn dns_message(bytes: &[u8]) {
    let (question, answer) = (question(bytes), answer(bytes));
    assert!(question.is_none() || answer.is_none());
    if let Some(question) = question.as_ref().or(answer.as_ref().map(|it| &it.question)) {
        assert!(question.name.len() <= LONGEST_NAME);
        assert!(!question.name.bytes().any(|byte| byte.is_ascii_uppercase()));
        assert!(!question.name.starts_with('.') && !question.name.ends_with('.'));
    }
    if let Some(answer) = answer {
        assert!(answer.addresses.len() <= MOST_RECORDS);
    }
}
