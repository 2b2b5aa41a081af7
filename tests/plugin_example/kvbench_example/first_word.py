"""A metric: the first word of a prediction."""


def first_word(prediction, answers):
    """1 if the prediction begins with the first word of an answer, without case; else 0."""
    word = (prediction.split() or [""])[0].lower()
    return float(any(word == answer.split()[0].lower() for answer in answers))
