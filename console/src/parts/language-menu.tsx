/** The choice of a language: each is called by its own name. */
import { chooseLanguage, language, languages, t, type Language } from "../language";
import { Globe } from "./icons";
import { Popover } from "./popover";

export function LanguageMenu() {
  return (
    <Popover class="button quiet icon" name={t("Language")} title={t("Language")} label={<Globe />}>
      {(close) =>
        Object.entries(languages).map(([one, name]) => (
          <button key={one} type="button" class="item" lang={one} aria-pressed={one === language} onClick={() => (one === language ? close() : chooseLanguage(one as Language))}>
            <span class="grow">{name}</span>
            {one === language && "✓"}
          </button>
        ))
      }
    </Popover>
  );
}
