// What a page says when it has no answer.

export class ServerError extends Error {
  constructor(message, hint) {
    super(message);
    this.hint = hint;
  }
}
